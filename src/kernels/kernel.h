// A kernel: who may do a composite of some name, on some platform, in the place of its decomposition.
//
// Note [Kernels]: what a composite means is said by its name, its attributes and its decomposition; a kernel is offered it
// while a program is emitted that will run, and claims it or not. What it claims it lowers to text: private functions,
// which call a handler of XLA's FFI or compute. So a program's text tells all that its kernels do, a handler's name with
// the hash of its library among it, and an executable on disk is found by that text: whoever gets it has emitted the text,
// and so registered its handlers.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/type.h"

namespace tpjrt::kernels {

// One composite of a program. The types' strides are those of PyTorch's tensors, of dense memory in their order.
struct Offer {
  std::string composite, platform;
  std::map<std::string, std::string> attributes;  // in MLIR's syntax
  std::vector<graph::TypePtr> operands, results;
  std::string file;  // the user's line
  int line = 0;
};

// What a kernel says to an offer.
struct Claim {
  // Set: it declines, and this is why.
  std::string declined;
  // Private functions, of which `name` takes the composite's place. What has the same name has the same text.
  std::string name, functions;
  // Where there are none: what is recorded in its place, of tensors like its operands. Called once.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> record;
};

class Kernel {
 public:
  // `label`: what explain() and errors call it.
  Kernel(std::string composite, std::string platform, std::string label)
      : composite_(std::move(composite)), platform_(std::move(platform)), label_(std::move(label)) {}
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const std::string& composite() const { return composite_; }
  const std::string& platform() const { return platform_; }
  const std::string& label() const { return label_; }
  // Called under the session's lock, in any thread. Throws what is wrong with the kernel.
  virtual Claim claim(const Offer& offer) const = 0;

 private:
  std::string composite_, platform_, label_;
};

}  // namespace tpjrt::kernels
