// The registered kernels, and the composites that are asked for because of them. May be used from any thread.
//
// A kernel may replace the decomposition of a composite on a platform.
//
// Note [Kernels]: a composite's name, attributes and decomposition say what it means. While a program is emitted that
// will run, its composites are offered to kernels, which claim them or decline. A kernel lowers what it claims to
// text: private functions that compute, or call a handler of XLA's FFI. The program's text therefore describes all
// that its kernels do, including a handler's name with the hash of its library. An executable on disk is found by
// that text: a process that gets it has emitted the text, and so has registered the handlers.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/signature.h"
#include "graph/type.h"
#include "pjrt/client.h"

namespace tpjrt::kernels {

// One composite of a program. The types' strides are those of PyTorch's tensors, which are dense in the order of the
// strides.
struct Offer {
  std::string composite, platform;
  std::map<std::string, std::string> attributes;  // in MLIR's syntax
  std::vector<graph::TypePtr> operands, results;
  std::string file;  // the user's line
  int line = 0;
};

// A kernel's answer to an offer.
struct Claim {
  // If set, the kernel declines, and this is the reason.
  std::string declined;
  // Private functions, of which `name` replaces the composite. Equal names imply equal text.
  std::string name, functions;
  // Used if there are no functions: records ops in the composite's place, from tensors like its operands. Called
  // once.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> record;
};

class Kernel {
 public:
  // `label`: the kernel's name in explain() and errors.
  Kernel(std::string composite, std::string platform, std::string label)
      : composite_(std::move(composite)), platform_(std::move(platform)), label_(std::move(label)) {}
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const std::string& composite() const { return composite_; }
  const std::string& platform() const { return platform_; }
  const std::string& label() const { return label_; }
  // Called under the session's lock, in any thread. Throws errors of the kernel.
  virtual Claim claim(const Offer& offer) const = 0;

 private:
  std::string composite_, platform_, label_;
};

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

// Which kernels claim composites while one program is emitted that will run, and what became of each composite.

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
