// The table that holds now, and the tables of earlier moments.
#include "kernels/table.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace tpjrt::kernels {
namespace {

struct Registry {
  std::mutex lock;
  std::vector<const Kernel*> kernels;
  std::map<std::pair<std::string, std::string>, std::vector<const Kernel*>> defaults;  // by composite and platform
  std::map<std::vector<const Kernel*>, std::unique_ptr<const Table>> tables;
  graph::CompositesPtr asked = default_composites();

  // Called under the lock.
  void publish() {
    graph::asked_composites() = asked == nullptr || asked->kernels != nullptr ? asked : with_kernels(*asked);
  }

  graph::CompositesPtr with_kernels(graph::Composites composites) {
    const Table* table = nullptr;
    if (!kernels.empty()) {
      auto& slot = tables[kernels];
      if (!slot) slot = std::make_unique<const Table>(kernels);
      table = slot.get();
    }
    composites.kernels = table;
    if (composites.by_default) {
      if (table == nullptr) return nullptr;
      composites.names = table->names();
    }
    return graph::intern(composites);
  }
};

Registry& registry() {
  static auto* one = new Registry;
  return *one;
}

}  // namespace

Table::Table(std::vector<const Kernel*> kernels) : kernels_(std::move(kernels)) {
  for (const Kernel* kernel : kernels_) {
    std::string name = kernel->composite();
    do names_.insert(name);
    while (graph::to_forward(name));
  }
}

std::vector<const Kernel*> Table::of(const std::string& composite) const {
  std::vector<const Kernel*> found;
  for (auto kernel = kernels_.rbegin(); kernel != kernels_.rend(); ++kernel) {
    if ((*kernel)->composite() == composite) found.push_back(*kernel);
  }
  return found;
}

const Kernel* add(std::unique_ptr<const Kernel> kernel) {
  Registry& all = registry();
  std::lock_guard guard(all.lock);
  all.kernels.push_back(kernel.release());
  all.publish();
  return all.kernels.back();
}

void remove(const Kernel* kernel) {
  Registry& all = registry();
  std::lock_guard guard(all.lock);
  std::erase(all.kernels, kernel);
  all.publish();
}

void add_default(std::unique_ptr<const Kernel> kernel) {
  Registry& all = registry();
  std::lock_guard guard(all.lock);
  auto& those = all.defaults[{kernel->composite(), kernel->platform()}];
  those.insert(those.begin(), kernel.release());
}

std::vector<const Kernel*> defaults_of(const std::string& composite, const std::string& platform) {
  Registry& all = registry();
  std::lock_guard guard(all.lock);
  const auto found = all.defaults.find({composite, platform});
  return found == all.defaults.end() ? std::vector<const Kernel*>{} : found->second;
}

graph::CompositesPtr default_composites() {
  graph::Composites composites;
  composites.by_default = true;
  return graph::intern(composites);
}

graph::CompositesPtr composites_switch() {
  Registry& all = registry();
  std::lock_guard guard(all.lock);
  return all.asked;
}

void set_composites_switch(graph::CompositesPtr asked) {
  Registry& all = registry();
  std::lock_guard guard(all.lock);
  all.asked = asked;
  all.publish();
}

}  // namespace tpjrt::kernels
