// The registered kernels, and the composites that are asked for because of them. May be used from any thread.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/composites.h"
#include "kernels/kernel.h"

namespace tpjrt::kernels {

// The kernels of one moment. Interned, and never freed: a compiled function keeps the table that it was compiled
// with.
class Table {
 public:
  explicit Table(std::vector<const Kernel*> kernels);
  // Returns the kernels for a composite, on any platform; the last registered first.
  std::vector<const Kernel*> of(const std::string& composite) const;
  // Returns the names that kernels claim, and the forward ops of backwards among them, without which there would be
  // no backwards.
  const std::set<std::string>& names() const { return names_; }

 private:
  std::vector<const Kernel*> kernels_;
  std::set<std::string> names_;
};

// Registers a kernel. From now on it is offered composites of its name before earlier kernels. It is not freed when
// it is removed.
const Kernel* add(std::unique_ptr<const Kernel> kernel);
void remove(const Kernel* kernel);

// Note [Default kernels]: a default kernel claims composites without being registered by the user. It is offered them
// in every program of its platform, after registered kernels. It is in no table, and its composites exist in such
// programs alone: signatures, and programs of other platforms, don't have them. A program that XLA refuses is
// compiled once more without default kernels, with a warning.
void add_default(std::unique_ptr<const Kernel> kernel);
// Returns the default kernels for a composite on that platform; the last added first.
std::vector<const Kernel*> defaults_of(const std::string& composite, const std::string& platform);

// The composites that are asked for (graph::asked_composites) are the switch's, with the current kernels. A switch
// that has kernels keeps them: a compiled function was compiled with it.
graph::CompositesPtr composites_switch();
void set_composites_switch(graph::CompositesPtr asked);
// Returns the default switch: the composites that a kernel can claim.
graph::CompositesPtr default_composites();

}  // namespace tpjrt::kernels
