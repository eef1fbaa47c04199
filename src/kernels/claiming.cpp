// Offers to the kernels of a table.
#include "kernels/claiming.h"

#include <algorithm>

namespace tpjrt::kernels {
namespace {

thread_local Claiming* claiming = nullptr;

}  // namespace

Claiming::Claiming(pjrt::Client& client) : client_(client) { claiming = this; }
Claiming::~Claiming() { claiming = nullptr; }
Claiming* Claiming::current() { return claiming; }

Answer Claiming::answer(const Table& table, const Offer& offer) {
  struct Offering {
    Claiming& whose;
    const Offer* before;
    Offering(Claiming& c, const Offer* offer) : whose(c), before(c.offer_) { c.offer_ = offer; }
    ~Offering() { whose.offer_ = before; }
  } const offering(*this, &offer);
  std::string declined;
  for (const Kernel* kernel : table.of(offer.composite)) {
    if (std::find(within_.begin(), within_.end(), kernel) != within_.end()) continue;
    std::string why;
    if (kernel->platform() != offer.platform) {
      why = "it is for " + kernel->platform();
    } else {
      Claim claim = kernel->claim(offer);
      if (claim.declined.empty()) return {kernel, std::move(claim), {}};
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
