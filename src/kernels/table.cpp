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

// Offers composites to the kernels of a table.

namespace {

thread_local Claiming* claiming = nullptr;

}  // namespace

Claiming::Claiming(pjrt::Client& client, bool with_defaults) : client_(client), with_defaults_(with_defaults) {
  claiming = this;
}
Claiming::~Claiming() { claiming = nullptr; }
Claiming* Claiming::current() { return claiming; }

bool Claiming::has_default(const std::string& composite) const {
  return with_defaults_ && !defaults_of(composite, client_.platform_name()).empty();
}

Answer Claiming::answer(const Table* table, const Offer& offer) {
  struct Offering {
    Claiming& whose;
    const Offer* before;
    Offering(Claiming& c, const Offer* offer) : whose(c), before(c.offer_) { c.offer_ = offer; }
    ~Offering() { whose.offer_ = before; }
  } const offering(*this, &offer);
  std::string declined;
  std::vector<const Kernel*> kernels = table == nullptr ? std::vector<const Kernel*>{} : table->of(offer.composite);
  const auto registered = std::ssize(kernels);
  if (with_defaults_) {
    const std::vector<const Kernel*> defaults = defaults_of(offer.composite, offer.platform);
    kernels.insert(kernels.end(), defaults.begin(), defaults.end());
  }
  for (const Kernel* kernel : kernels) {
    if (std::find(within_.begin(), within_.end(), kernel) != within_.end()) continue;
    std::string why;
    if (kernel->platform() != offer.platform) {
      why = "it is for " + kernel->platform();
    } else {
      Claim claim = kernel->claim(offer);
      if (claim.declined.empty()) {
        const bool is_default = std::find(kernels.begin(), kernels.end(), kernel) - kernels.begin() >= registered;
        if (is_default) claimed_by_default_.insert(kernel->label());
        return {kernel, std::move(claim), {}};
      }
      why = claim.declined;
    }
    declined += (declined.empty() ? "" : "; ") + kernel->label() + " declined: " + why;
  }
  return {nullptr, {}, declined};
}

void Claiming::done(const std::string& composite, const std::string& by) {
  if (within_.empty()) ++done_[{composite, by}];
}

Claiming::Within::Within(const Kernel* kernel) {
  if (claiming != nullptr) claiming->within_.push_back(kernel);
}

Claiming::Within::~Within() {
  if (claiming != nullptr) claiming->within_.pop_back();
}

Unclaimed::Unclaimed() : before_(claiming) { claiming = nullptr; }
Unclaimed::~Unclaimed() { claiming = before_; }

}  // namespace tpjrt::kernels
