// Which kernels claim composites while one program is emitted that will run, and what became of each composite.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/table.h"
#include "pjrt/client.h"

namespace tpjrt::kernels {

// The kernel that claims an offer, or the reason why none does.
struct Answer {
  const Kernel* kernel = nullptr;
  Claim claim;
  std::string declined;  // empty: there is no kernel for it
};

// Belongs to a thread while it lives; a thread has one at a time. Programs that are only shown have none, and no
// kernels.
class Claiming {
 public:
  // `with_defaults`: the default kernels may claim (Note [Default kernels]).
  explicit Claiming(pjrt::Client& client, bool with_defaults = true);
  ~Claiming();
  Claiming(const Claiming&) = delete;
  Claiming& operator=(const Claiming&) = delete;
  static Claiming* current();

  pjrt::Client& client() const { return client_; }
  // Returns the offer being made; null between offers.
  const Offer* offer() const { return offer_; }

  // Returns the last registered kernel that claims the offer, else a default kernel (Note [Default kernels]). Kernels
  // that are being recorded in a composite's place (Within) are not offered its parts. `table`: null if none is
  // registered.
  Answer answer(const Table* table, const Offer& offer);
  // Returns whether a default kernel exists that may claim the composite.
  bool has_default(const std::string& composite) const;
  // Returns the labels of the default kernels that claimed; empty if none did.
  const std::set<std::string>& defaults() const { return claimed_by_default_; }
  // Records what lowers a composite of the program. Composites within others are not counted.
  void done(const std::string& composite, const std::string& by);
  // (composite, what lowers it) -> count
  std::map<std::pair<std::string, std::string>, uint32_t> all_done() const { return done_; }
  void begin() { done_.clear(); }  // the program is emitted again

  // While it lives, ops are emitted as part of a composite: recorded by this kernel, or (null) from a decomposition.
  class Within {
   public:
    explicit Within(const Kernel* kernel);
    ~Within();
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
  };

 private:
  pjrt::Client& client_;
  bool with_defaults_;
  const Offer* offer_ = nullptr;
  std::vector<const Kernel*> within_;
  std::map<std::pair<std::string, std::string>, uint32_t> done_;
  std::set<std::string> claimed_by_default_;
};

// No kernel is offered anything while it lives, because the emitted ops are discarded.
class Unclaimed {
 public:
  Unclaimed();
  ~Unclaimed();
  Unclaimed(const Unclaimed&) = delete;
  Unclaimed& operator=(const Unclaimed&) = delete;

 private:
  Claiming* before_;
};

}  // namespace tpjrt::kernels
