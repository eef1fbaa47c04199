// The kernels that are registered, and with them what composites are asked for. May be used from any thread.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/composites.h"
#include "kernels/kernel.h"

namespace tpjrt::kernels {

// The kernels of one moment. Interned, and never freed: a compiled function keeps the ones it was compiled with.
class Table {
 public:
  explicit Table(std::vector<const Kernel*> kernels);
  // Those for it, on any platform; the last registered first.
  std::vector<const Kernel*> of(const std::string& composite) const;
  // The names there are kernels for, and what these are backwards of, without which there would be none.
  const std::set<std::string>& names() const { return names_; }

 private:
  std::vector<const Kernel*> kernels_;
  std::set<std::string> names_;
};

// From now on it is offered what it is for, before those that were there. It lives on when it is removed.
const Kernel* add(std::unique_ptr<const Kernel> kernel);
void remove(const Kernel* kernel);

// Note [Default kernels]: a kernel that nobody has to ask for. It is offered what it is for in every program of its platform,
// after those that were registered. So it is in no table, and what it is for is a composite in such programs alone: signatures,
// and programs of other platforms, know nothing of it. A program that XLA refuses is made once more without them, with a warning.
void add_default(std::unique_ptr<const Kernel> kernel);
// Those for it on that platform; the last added first.
std::vector<const Kernel*> defaults_of(const std::string& composite, const std::string& platform);

// What is asked for now (graph::asked_composites) is the switch, with the kernels of now. A switch that has kernels keeps
// them: it is what a compiled function was compiled with.
graph::CompositesPtr composites_switch();
void set_composites_switch(graph::CompositesPtr asked);
// What holds unless something else is asked for: the composites that a kernel can claim.
graph::CompositesPtr default_composites();

}  // namespace tpjrt::kernels
