// Offers composites to the kernels of a table.
#include "kernels/claiming.h"

#include <algorithm>

namespace tpjrt::kernels {
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
