// CompileOptionsProto by hand. Field numbers are those of xla/pjrt/proto/compile_options.proto and xla/xla_data.proto.
#include "pjrt/compile_options.h"

#include <cstring>

namespace tpjrt::pjrt {

namespace {

// A protobuf message under construction.
class Message {
 public:
  void integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void real(int field, double value) {
    tag(field, 1);
    char bytes[sizeof value];  // little-endian, like all supported hosts
    std::memcpy(bytes, &value, sizeof value);
    bytes_.append(bytes, sizeof value);
  }
  void text(int field, const std::string& value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int wire_type) { varint(static_cast<uint64_t>(field << 3 | wire_type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

Message option_override(const Options::mapped_type& value) {
  Message message;  // OptionOverrideProto
  if (const auto* text = std::get_if<std::string>(&value)) message.text(1, *text);
  if (const auto* flag = std::get_if<bool>(&value)) message.integer(2, *flag);
  if (const auto* integer = std::get_if<int64_t>(&value)) message.integer(3, *integer);
  if (const auto* real = std::get_if<double>(&value)) message.real(4, *real);
  return message;
}

}  // namespace

std::string serialize(const CompileOptions& options, std::span<const int> device_ids, bool spans_processes) {
  const auto count = static_cast<int64_t>(device_ids.size());
  Message replicas;  // DeviceAssignmentProto.ComputationDevice
  for (const int id : device_ids) replicas.integer(1, id);

  Message assignment;  // DeviceAssignmentProto
  assignment.integer(1, count);
  assignment.integer(2, 1);
  assignment.message(3, replicas);

  Message build;  // ExecutableBuildOptionsProto
  // The ordinal counts the host's devices. In a client of several processes each process has one device, and -1 stands
  // for it.
  build.integer(1, spans_processes ? -1 : device_ids.front());  // device_ordinal
  build.integer(4, count);                                      // num_replicas
  build.integer(5, 1);                                          // num_partitions
  build.message(9, assignment);

  Message compile;  // CompileOptionsProto
  compile.message(3, build);
  for (const auto& [name, value] : options.overrides) {
    Message entry;  // of map env_option_overrides
    entry.text(1, name);
    entry.message(2, option_override(value));
    compile.message(7, entry);
  }
  return compile.bytes();
}

}  // namespace tpjrt::pjrt
