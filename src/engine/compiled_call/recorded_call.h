// The nodes of a small compiled graph, copied behind the pending work of its arguments.
//
// Note [Recorded calls]: a library compiles a function of a few calls, such as attention, inside of a step that is not
// compiled. To run its program, the work before it would have to run first, and the step would fall into two programs
// at each such call. So a call of at most kMostNodes nodes whose arguments are pending is recorded instead: a copy of
// the traced nodes costs no dispatch and no Meta kernel, and the step stays one graph. Left out are calls with effects
// (updated arguments, random draws, assertions that no result needs), those that take or give tensors elsewhere than on
// the device, and those with a value of more than kMostBytes, which their program may never store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "graph/node.h"

namespace tpjrt::engine {

class RecordedCall {
 public:
  static constexpr size_t kMostNodes = 200;               // the backward of a masked attention has a hundred
  static constexpr size_t kMostBytes = size_t{64} << 20;  // of one value

  // Returns the call whose results are `results`, or nothing if it has too many nodes, draws random numbers or depends
  // on other leaves than `arguments`.
  static std::optional<RecordedCall> of(const std::vector<graph::Value>& results,
                                        const std::vector<const graph::Node*>& arguments);

  // Returns the results' values for these values of the arguments. Call it under graph_lock().
  std::vector<graph::Value> record(const std::vector<graph::Value>& arguments) const;

 private:
  // A result of a call of calls_, or an argument.
  struct Operand {
    bool is_argument;
    uint32_t place, result;  // index among the calls or arguments; the call's result
  };
  struct Call {
    graph::SignaturePtr signature;
    std::vector<Operand> operands;
    std::vector<graph::ScalarValue> scalars;
  };
  std::vector<Call> calls_;  // operands first
  std::vector<Operand> results_;
};

}  // namespace tpjrt::engine
