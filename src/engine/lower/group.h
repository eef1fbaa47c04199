// Groups of calls under a name: composites of the user's, and ops that PyTorch takes apart before they are recorded.
//
// A function is traced by the recorder on placeholders, and is one node, whose operands are the function's tensors, then what
// it reads besides. Its numbers are those of its calls, so that what varies is an operand of the composite, too. The node's
// signature is interned by the name, the attributes and the tape of the trace: the same function makes the same program.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/lower/emit_call.h"
#include "graph/node.h"
#include "graph/tape/walk.h"

namespace tpjrt::engine {

// What a signature of a group holds.
struct GroupBody {
  std::string name;
  std::map<std::string, std::string> attributes;  // in MLIR syntax; "operands": names of the function's tensors
  graph::TapeGraph graph;
  std::vector<uint32_t> operands;  // of each leaf of the graph, the node's operand
  size_t tensors = 0;              // of the operands, those that are the function's
  bool crosses_ranks = false;      // see below: its calls do
};

// Does a call give ranks of a world other values than their operands' would be, or wait for other ranks? A collective, say.
bool crosses_ranks(const graph::Signature& signature);

// A function being traced, in one thread. While one lives, what it writes to from outside is remembered, and given its
// value back.
class Group {
 public:
  explicit Group(const std::vector<at::Tensor>& operands);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::vector<at::Tensor>& placeholders() const { return placeholders_; }
  // Ends the trace and records the node. Throws where the function draws random numbers.
  std::vector<at::Tensor> record(const std::string& name, const std::map<std::string, std::string>& attributes,
                                 const std::vector<at::Tensor>& results);
  // Which operands it writes to; -1: a tensor that is none.
  std::vector<int64_t> written() const;
  void end();

 private:
  std::vector<at::Tensor> operands_, placeholders_;
  std::vector<graph::NodePtr> leaves_;
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

hlo::Values emit_group(ops::Emit& e, const GroupBody& body, const graph::Signature& signature,
                       const hlo::Values& operands, const std::vector<LoweredNumber>& numbers);

}  // namespace tpjrt::engine
