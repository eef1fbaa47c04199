// A reader of protobuf's wire format and a printer of the HLO in it. Field numbers are those of xla/service/hlo.proto
// and xla/xla_data.proto.
#include "pjrt/hlo_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace tpjrt::pjrt {

namespace {

// Iterates over the fields of one message. Ends early at anything malformed.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  // Moves to the next field; false at the end.
  bool next() {
    uint64_t tag = 0;
    if (bytes_.empty() || !varint(tag)) return false;
    number_ = static_cast<int>(tag >> 3);
    bytes_value_ = {};
    integer_ = 0;
    switch (tag & 7) {
      case 0: return varint(integer_);
      case 1: return skip(8);
      case 2: {
        uint64_t size = 0;
        if (!varint(size) || size > bytes_.size()) return false;
        bytes_value_ = bytes_.substr(0, size);
        return skip(size);
      }
      case 5: return skip(4);
      default: return false;
    }
  }
  int number() const { return number_; }
  std::string_view bytes() const { return bytes_value_; }
  std::string text() const { return std::string(bytes_value_); }
  int64_t integer() const { return static_cast<int64_t>(integer_); }
  // Appends a repeated integer, packed or not.
  void append_to(std::vector<int64_t>& values) const {
    if (bytes_value_.data() == nullptr) {
      values.push_back(integer());
      return;
    }
    Fields packed(bytes_value_);
    for (uint64_t value = 0; !packed.bytes_.empty() && packed.varint(value);) {
      values.push_back(static_cast<int64_t>(value));
    }
  }

 private:
  bool skip(size_t size) {
    if (size > bytes_.size()) return false;
    bytes_.remove_prefix(size);
    return true;
  }
  bool varint(uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view bytes_;
  std::string_view bytes_value_;
  uint64_t integer_ = 0;
  int number_ = 0;
};

std::string join(const std::vector<int64_t>& values) {
  std::string text;
  for (int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

std::string_view primitive_type(int64_t type) {
  static constexpr std::array<std::string_view, 34> kNames = {
      "invalid", "pred",   "s8",       "s16", "s32",   "s64",           "u8",         "u16",        "u32",
      "u64",     "f16",    "f32",      "f64", "tuple", "opaque",        "c64",        "bf16",       "token",
      "c128",    "f8e5m2", "f8e4m3fn", "s4",  "u4",    "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "s2",
      "u2",      "f8e4m3", "f8e3m4",   "s1",  "u1",    "f4e2m1fn",      "f8e8m0fnu"};
  return type >= 0 && static_cast<size_t>(type) < kNames.size() ? kNames[static_cast<size_t>(type)] : "other";
}

// Formats a shape: "f32[2,3]{1,0}", "(f32[], s32[4]{0})". Cuts nesting deeper than a compiler makes, for malformed
// input.
std::string shape_text(std::string_view bytes, int depth = 0) {
  constexpr int64_t kTuple = 13;
  int64_t element = 0;
  std::vector<int64_t> dims, layout;
  std::string parts;
  for (Fields field(bytes); depth < 16 && field.next();) {
    if (field.number() == 2) element = field.integer();
    if (field.number() == 3) field.append_to(dims);
    if (field.number() == 4) parts += (parts.empty() ? "" : ", ") + shape_text(field.bytes(), depth + 1);
    if (field.number() == 5) {
      for (Fields inner(field.bytes()); inner.next();) {
        if (inner.number() == 1) inner.append_to(layout);
      }
    }
  }
  if (element == kTuple) return "(" + parts + ")";
  return std::string(primitive_type(element)) + "[" + join(dims) + "]" + (dims.empty() ? "" : "{" + join(layout) + "}");
}

struct Instruction {
  int64_t id = 0, parameter = 0, tuple_index = 0, source_line = 0;
  std::string name, opcode, shape, fusion_kind, target, direction, source_file;
  std::vector<int64_t> operands, called, dimensions;
};

struct Computation {
  int64_t id = 0, root = 0;
  std::string name;
  std::vector<Instruction> instructions;
};

Instruction read_instruction(std::string_view bytes) {
  Instruction instruction;
  for (Fields field(bytes); field.next();) {
    switch (field.number()) {
      case 1: instruction.name = field.text(); break;
      case 2: instruction.opcode = field.text(); break;
      case 3: instruction.shape = shape_text(field.bytes()); break;
      case 7:
        for (Fields metadata(field.bytes()); metadata.next();) {
          if (metadata.number() == 3) instruction.source_file = metadata.text();
          if (metadata.number() == 4) instruction.source_line = metadata.integer();
        }
        break;
      case 9: instruction.parameter = field.integer(); break;
      case 11: instruction.fusion_kind = field.text(); break;
      case 13: instruction.tuple_index = field.integer(); break;
      case 14: field.append_to(instruction.dimensions); break;
      case 28: instruction.target = field.text(); break;
      case 35: instruction.id = field.integer(); break;
      case 36: field.append_to(instruction.operands); break;
      case 38: field.append_to(instruction.called); break;
      case 63: instruction.direction = field.text(); break;
      default: break;
    }
  }
  return instruction;
}

Computation read_computation(std::string_view bytes) {
  Computation computation;
  for (Fields field(bytes); field.next();) {
    if (field.number() == 1) computation.name = field.text();
    if (field.number() == 2) computation.instructions.push_back(read_instruction(field.bytes()));
    if (field.number() == 5) computation.id = field.integer();
    if (field.number() == 6) computation.root = field.integer();
  }
  return computation;
}

std::string module_text(std::string_view bytes) {
  std::string name;
  int64_t entry = -1;
  std::vector<Computation> computations;
  for (Fields field(bytes); field.next();) {
    if (field.number() == 1) name = field.text();
    if (field.number() == 3) computations.push_back(read_computation(field.bytes()));
    if (field.number() == 6) entry = field.integer();
  }
  std::map<int64_t, std::string> names, computation_names;
  for (const Computation& computation : computations) {
    computation_names[computation.id] = computation.name;
    for (const Instruction& instruction : computation.instructions) names[instruction.id] = instruction.name;
  }
  const auto list = [](const std::vector<int64_t>& ids, const std::map<int64_t, std::string>& names) {
    std::string text;
    for (int64_t id : ids) {
      const auto found = names.find(id);
      text += (text.empty() ? "%" : ", %") + (found != names.end() ? found->second : std::to_string(id));
    }
    return text;
  };
  std::string text = "HloModule " + name + "\n";
  for (const Computation& computation : computations) {
    text += std::string("\n") + (computation.id == entry ? "ENTRY " : "") + "%" + computation.name + " {\n";
    for (const Instruction& i : computation.instructions) {
      text += std::string("  ") + (i.id == computation.root ? "ROOT " : "") + "%" + i.name + " = " + i.shape + " " +
              i.opcode + "(" + (i.opcode == "parameter" ? std::to_string(i.parameter) : list(i.operands, names)) + ")";
      if (i.opcode == "get-tuple-element") text += ", index=" + std::to_string(i.tuple_index);
      if (!i.dimensions.empty()) text += ", dimensions={" + join(i.dimensions) + "}";
      if (!i.direction.empty()) text += ", direction=" + i.direction;
      if (!i.fusion_kind.empty()) text += ", kind=" + i.fusion_kind;
      if (!i.target.empty()) text += ", custom_call_target=\"" + i.target + "\"";
      if (!i.called.empty()) text += ", calls=" + list(i.called, computation_names);
      if (!i.source_file.empty()) text += "  // " + i.source_file + ":" + std::to_string(i.source_line);
      text += "\n";
    }
    text += "}\n";
  }
  return text;
}

}  // namespace

std::string hlo_text(std::string_view program, std::string_view format) {
  if (format == "hlo") return module_text(program);
  if (format == "hlo_with_config") {
    for (Fields field(program); field.next();) {
      if (field.number() == 1) return module_text(field.bytes());
    }
    return "";
  }
  const bool is_text = std::none_of(program.begin(), program.end(), [](char c) { return c >= 0 && c < '\t'; });
  if (is_text) return std::string(program);
  return "(" + std::to_string(program.size()) + " bytes of format \"" + std::string(format) + "\")\n";
}

}  // namespace tpjrt::pjrt
