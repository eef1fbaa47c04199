// program.json: the arguments, results and state of a file's entries.
//
// Plain records, validated when they are read: every index and name is valid, so users need not check again.
// docs/file-format.md describes the JSON.
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

// The newest format that this can read.
inline constexpr int64_t kFormat = 1;

// An argument or a result of a compiled program.
struct Place {
  enum class Kind : uint8_t { kArgument, kState, kResult, kAssertions };
  Kind kind = Kind::kArgument;
  size_t index = 0;  // into the entry's arguments or results, or into Signature::state
};

// A runtime assertion. Note [Runtime assertions] (engine/lower/module/assertions.h).
struct Required {
  int64_t low = 0, high = 0;
  std::string message, op;
};

struct Text {
  std::string member;
  pjrt::CompileOptions options;
};

struct VariantSpec {
  torch_pjrt::Variant described;
  std::vector<Place> parameters, outputs;
  std::vector<Required> required;
  std::map<std::string, Text, std::less<>> texts;  // by platform; "any": for all others
  std::map<std::string, int64_t> ops;
  std::vector<std::string> composites;  // each with its implementation and count
  std::shared_ptr<const std::vector<std::string>> result_names;
};

struct EntryForm {
  std::string name;
  std::vector<VariantSpec> variants;
};

struct StateForm {
  Described described;
  std::vector<std::string> aliases;  // its other names, as for tied weights
  bool is_frozen = false;            // kernels may keep data derived from it: it is neither set nor saved
};

struct KernelForm {
  std::string target, symbol, library, path;
};

struct Signature {
  std::map<std::string, std::string> made_by;
  std::string separate_weights;  // name of the weights' file; "": they are in this file
  uint32_t separate_crc = 0;
  std::vector<EntryForm> entries;
  std::vector<StateForm> state;
  std::map<std::string, size_t, std::less<>> state_index;  // aliases included
  std::vector<KernelForm> kernels;
};

// Throws file::Error with the file's name.
Signature read_signature(const file::Archive& archive);

}  // namespace tpjrt::runner
