// While one program is emitted that will run: on which device kernels claim, and what became of each composite.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/table.h"
#include "pjrt/client.h"

namespace tpjrt::kernels {

// Who claims an offer, or why nobody does.
struct Answer {
  const Kernel* kernel = nullptr;
  Claim claim;
  std::string declined;  // empty: no kernel is for it
};

// Of a thread, for as long as it lives; one at a time. Programs that are only shown have none, and no kernels.
class Claiming {
 public:
  // `with_defaults`: may the default kernels claim (Note [Default kernels])?
  explicit Claiming(pjrt::Client& client, bool with_defaults = true);
  ~Claiming();
  Claiming(const Claiming&) = delete;
  Claiming& operator=(const Claiming&) = delete;
  static Claiming* current();

  pjrt::Client& client() const { return client_; }
  // The offer being made; null between offers.
  const Offer* offer() const { return offer_; }

  // The last registered that claims, else a default one (Note [Default kernels]). Those that are being recorded in a
  // composite's place (Within) are not offered what they are made of. `table`: null where none is registered.
  Answer answer(const Table* table, const Offer& offer);
  // Is there a default kernel that may claim it?
  bool has_default(const std::string& composite) const;
  // What the default kernels are called that claimed; empty: none did.
  const std::set<std::string>& defaults() const { return claimed_by_default_; }
  // Who does a composite of the program. Not told of composites within others.
  void done(const std::string& composite, const std::string& by);
  // (composite, by whom) -> how often
  std::map<std::pair<std::string, std::string>, uint32_t> all_done() const { return done_; }
  void begin() { done_.clear(); }  // the program is emitted anew

  // What is emitted while it lives is part of a composite: of what this kernel recorded, or (null) of a decomposition.
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

// No kernel is offered anything while it lives: what is emitted is thrown away.
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
