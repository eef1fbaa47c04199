// A readable description of a program's graph, and the graph that it resembles. torch_pjrt.explain() reports both for
// new programs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/executable/program.h"

namespace tpjrt::engine {

struct Description {
  // The origin of a tensor: a result of a call or, if `call` < 0, the program's argument -1 - call.
  struct Source {
    int64_t call = 0;
    uint32_t index = 0;
  };
  // One argument of a call. Each element of a list is a field of its own, "tensors[2]".
  struct Field {
    enum class Kind : uint8_t {
      kTensor,
      kAttribute,
      kScalar,
      kInput,
      kPinned
    };  // kInput: a scalar that is an input of the program
    std::string name;
    Kind kind = Kind::kAttribute;
    std::string text;  // a tensor's type, otherwise the value
    Source source;     // of a tensor
  };
  struct Call {
    std::string op, file;  // the user's line that first recorded this call
    int line = 0;
    std::vector<Field> fields;
  };
  uint64_t graph = 0;  // the program's serial
  std::vector<Call> calls;
  std::vector<std::string> arguments;  // types
  std::vector<Source> results;
  std::map<std::pair<std::string, std::string>, uint32_t> composites;  // (name, implementation) -> count
  std::map<std::pair<std::string, std::string>, uint32_t> kernels;     // (op, CPU kernel) -> count
  std::vector<std::pair<uint32_t, uint32_t>> reused;                   // (argument, result): donated memory
};

Description description_of(const Program& program);

// Returns the program that has the most calls, types and operands in common with the new one; null if none shares half
// of its ops. `programs` doesn't contain the new one.
std::shared_ptr<const Program> most_similar(const Program& fresh,
                                            const std::vector<std::shared_ptr<Program>>& programs);

}  // namespace tpjrt::engine
