// A program's graph in words, and which graph it resembles: what torch_pjrt.explain() tells of a program that was new.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/program/program.h"

namespace tpjrt::engine {

struct Description {
  // Where a tensor comes from: a result of a call, or (`call` < 0) the argument -1 - call of the program.
  struct Source {
    int64_t call = 0;
    uint32_t index = 0;
  };
  // One argument of a call; a list has one for each element, "tensors[2]".
  struct Field {
    enum class Kind : uint8_t {
      kTensor,
      kAttribute,
      kNumber,
      kInput,
      kPinned
    };  // kInput: a number, whatever its value
    std::string name;
    Kind kind = Kind::kAttribute;
    std::string text;  // a tensor's type, else the value
    Source source;     // of a tensor
  };
  struct Call {
    std::string op, file;  // the user's line that first made such a call
    int line = 0;
    std::vector<Field> fields;
  };
  uint64_t graph = 0;  // the program's serial
  std::vector<Call> calls;
  std::vector<std::string> arguments;  // types
  std::vector<Source> results;
  std::map<std::pair<std::string, std::string>, uint32_t> composites;  // (name, who does it) -> how many
  std::map<std::pair<std::string, std::string>, uint32_t> kernels;  // (op, the CPU's kernel that it calls) -> how many
  std::vector<std::pair<uint32_t, uint32_t>> reused;                // (argument, result): may be written over it
};

Description description_of(const Program& program);

// The program whose calls, types and operands have most in common with the new one's; null where none has as much as half
// of its ops. `programs`: without the new one.
std::shared_ptr<const Program> most_similar(const Program& fresh,
                                            const std::vector<std::shared_ptr<Program>>& programs);

}  // namespace tpjrt::engine
