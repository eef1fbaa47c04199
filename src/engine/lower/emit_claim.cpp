// Offers composites to kernels, and emits the kernels that claim them.
#include "engine/lower/emit_claim.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <mutex>
#include <unordered_set>

#include "device/aten_call/meta.h"
#include "device/services/modes.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"
#include "engine/lower/emit_call.h"
#include "graph/node.h"

namespace tpjrt::engine {

namespace {

using graph::Signature;
using graph::TypePtr;
using hlo::Value;
using hlo::Values;
using kernels::Claiming;
using ops::Emit;

std::vector<TypePtr> result_types(const Signature& signature) {
  std::vector<TypePtr> types;
  for (const TypePtr type : signature.results) {
    if (type) types.push_back(graph::dense(type));
  }
  return types;
}

std::string in_words(c10::ScalarType dtype, c10::IntArrayRef sizes) { return c10::str(dtype, sizes); }

// Enables autograd: a backend's kernel may be the autograd formula of a forward.
struct Differentiable {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  c10::impl::ForceDispatchKeyGuard guard{keys.included_,
                                         keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

// Traces the kernel's function on placeholders with the recorder.
Subgraph recorded(const Signature& signature, const std::string& what, const kernels::Claim& claim,
                  const std::vector<TypePtr>& operands, const std::vector<TypePtr>& expected) {
  Subgraph graph;
  std::vector<at::Tensor> tensors, results;
  for (const TypePtr type : operands) tensors.push_back(graph.add_placeholder(graph::dense(type), signature.device));
  {
    const device::BelowEverything below;
    const Differentiable differentiable;
    const device::StaysLazy lazy;
    const Unwatched unwatched;
    for (const at::Tensor& result : claim.record(tensors)) results.push_back(result.resolve_conj().resolve_neg());
  }
  TORCH_CHECK(results.size() == expected.size(), what, " gives ", results.size(), " tensors, the composite gives ",
              expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    TORCH_CHECK(results[i].scalar_type() == expected[i]->dtype && results[i].sizes() == expected[i]->sizes, what,
                ": result ", i, " is ", in_words(results[i].scalar_type(), results[i].sizes()), ", the composite's is ",
                in_words(expected[i]->dtype, expected[i]->sizes));
    TORCH_CHECK(device::is_pjrt(results[i]), what, ": result ", i, " is on ", results[i].device());
  }
  std::lock_guard lock(graph::graph_lock());
  for (const at::Tensor& result : results) graph.results.push_back(device::read(result));
  std::unordered_set<const graph::Node*> known;
  for (const graph::NodePtr& leaf : graph.placeholders) known.insert(leaf.get());
  for (const graph::Node* node : graph::topological_order(graph.results)) {
    TORCH_CHECK(!node->is_leaf() || known.contains(node), what,
                " uses a tensor that is none of its operands; what it needs besides, it makes itself");
    TORCH_CHECK(node->is_leaf() || !node->signature->random, what, " draws random numbers");
  }
  return graph;
}

}  // namespace

kernels::Answer offer(const Signature& signature, const std::string& name,
                      const std::map<std::string, std::string>& attributes, const std::vector<TypePtr>& operands) {
  Claiming* claiming = Claiming::current();
  if (claiming == nullptr) return {};
  const kernels::Table* table = signature.composites ? signature.composites->kernels : nullptr;
  if (table == nullptr && !claiming->has_default(name)) return {};
  kernels::Offer offer;
  offer.composite = name;
  offer.platform = claiming->client().platform_name();
  offer.attributes = attributes;
  for (const TypePtr type : operands) offer.operands.push_back(graph::dense(type));
  offer.results = result_types(signature);
  offer.file = signature.file;
  offer.line = signature.line;
  return claiming->answer(table, offer);
}

Values emit_claim(ops::Emit& e, const Signature& signature, const std::string& name, const kernels::Answer& answer,
                  const Values& operands, const std::vector<TypePtr>& types) {
  const std::string what = answer.kernel->label() + " for composite '" + name + "'";
  Claiming::current()->done(name, answer.kernel->label());
  const Claiming::Within within(answer.kernel);
  const std::vector<TypePtr> expected = result_types(signature);
  Values given;
  if (!answer.claim.name.empty()) {
    std::vector<hlo::Type> of_results;
    for (const TypePtr type : expected) of_results.push_back(e.type_of(*type));
    given = e.call(answer.claim.name, answer.claim.functions, operands, of_results);
  } else {
    given = emit_subgraph(e, recorded(signature, what, answer.claim, types, expected), operands, {});
  }
  Values all;
  size_t next = 0;
  for (const TypePtr type : signature.results) all.push_back(type ? given[next++] : hlo::Value{});
  return all;
}

}  // namespace tpjrt::engine
