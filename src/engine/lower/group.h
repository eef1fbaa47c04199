// Groups of calls under a name: composites of the user's, and ops that PyTorch decomposes before they are recorded.
//
// The recorder traces a function on placeholders into one node. Its operands are the function's tensors, then other
// tensors that it reads. Its scalars are its calls' scalars, so that varying scalars are operands of the composite,
// too. The signature is interned by name, attributes and the trace's fingerprint: equal functions give equal programs.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/lower/emit_call.h"
#include "graph/fingerprint/walk.h"
#include "graph/node.h"

namespace tpjrt::engine {

// The group's part of a signature.
struct GroupBody {
  std::string name;
  std::map<std::string, std::string> attributes;  // in MLIR syntax; "operands": the function's tensor names
  graph::DecodedGraph graph;
  std::vector<uint32_t> operands;  // for each leaf of the graph the node's operand
  size_t tensors = 0;              // number of operands that are the function's tensors
  bool crosses_ranks = false;      // some call does, see below
};

// Returns true if a call's result differs by rank although its operands don't, or waits for other ranks, as a
// collective does.
bool crosses_ranks(const graph::Signature& signature);

// A function being traced in one thread. While it lives, its writes to outside tensors are recorded, and their values
// are restored at its end.
class Group {
 public:
  explicit Group(const std::vector<at::Tensor>& operands);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::vector<at::Tensor>& placeholders() const { return placeholders_; }
  // Ends the trace and records the node. Throws if the function draws random numbers.
  std::vector<at::Tensor> record(const std::string& name, const std::map<std::string, std::string>& attributes,
                                 const std::vector<at::Tensor>& results);
  // Returns the operands that the function writes to; -1 stands for a tensor that is no operand.
  std::vector<int64_t> written() const;
  void end();

 private:
  std::vector<at::Tensor> operands_, placeholders_;
  std::vector<graph::NodePtr> leaves_;
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

hlo::Values emit_group(ops::Emit& e, const GroupBody& body, const graph::Signature& signature,
                       const hlo::Values& operands, const std::vector<LoweredScalar>& scalars);

}  // namespace tpjrt::engine
