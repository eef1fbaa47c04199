// program.json: what a file's entries take, give and keep.
//
// Plain records, checked when they are read: every index and name leads somewhere, so that nobody who follows them looks
// again. docs/files.md describes the JSON.
#pragma once

#include <torch_pjrt/program.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "file/archive.h"
#include "file/json.h"
#include "pjrt/executable.h"

namespace tpjrt::runner {

using torch_pjrt::Described;
using torch_pjrt::DType;
using torch_pjrt::Shape;

// The newest format that this reads.
inline constexpr int64_t kFormat = 1;

// An argument or a result of a compiled program.
struct Place {
  enum class Kind : uint8_t { kArgument, kState, kResult, kRequirements };
  Kind kind = Kind::kArgument;
  size_t index = 0;  // into the entry's arguments or results, or into Signature::state
};

// Note [Requirements] (engine/lower/program/requirements.h).
struct Required {
  int64_t low = 0, high = 0;
  std::string message, op;
};

struct Text {
  std::string member;
  pjrt::CompileOptions options;
};

struct VariantForm {
  torch_pjrt::Variant described;
  std::vector<Place> parameters, outputs;
  std::vector<Required> required;
  std::map<std::string, Text, std::less<>> texts;  // by platform; "any": for every other
  std::map<std::string, int64_t> ops;
  std::vector<std::string> composites;  // each with who does it and how often
  std::shared_ptr<const std::vector<std::string>> result_names;
};

struct EntryForm {
  std::string name;
  std::vector<VariantForm> variants;
};

struct StateForm {
  Described described;
  std::vector<std::string> aliases;  // other names of it, as of tied weights
  bool is_frozen = false;            // kernels may keep what they made of it: it is neither set nor saved
};

struct KernelForm {
  std::string target, symbol, library, path;
};

struct Signature {
  std::map<std::string, std::string> made_by;
  std::string separate_weights;  // the name of their file; "": they are in this one
  uint32_t separate_crc = 0;
  std::vector<EntryForm> entries;
  std::vector<StateForm> state;
  std::map<std::string, size_t, std::less<>> state_index;  // aliases too
  std::vector<KernelForm> kernels;
};

// Throws file::Error, which names the file.
Signature read_signature(const file::Archive& archive);

}  // namespace tpjrt::runner
