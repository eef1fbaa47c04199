// Checks indices of the backwards of embeddings and negative log likelihoods.
#include "engine/run/kernel/index_guard.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/ne.h>
#include <c10/util/Exception.h>

#include <string>

namespace tpjrt::engine {
namespace {

using kernels::HostArguments;

void check(const at::Tensor& indices, int64_t size) {
  if (indices.numel() == 0) return;
  const auto [least, greatest] = at::aminmax(indices);
  TORCH_CHECK_INDEX(least.item<int64_t>() >= 0 && greatest.item<int64_t>() < size, "index out of range in self");
}

void of_table(const HostArguments& call) { check(call.tensor("indices"), call.integer("num_weights")); }

void of_bags(const HostArguments& call) {
  of_table(call);
  check(call.tensor("offset2bag"), call.tensor("grad").size(0));
}

void of_weights_of_bags(const HostArguments& call) {
  check(call.tensor("indices"), call.tensor("weight").size(0));
  check(call.tensor("offset2bag"), call.tensor("grad").size(0));
}

// The forward's error names the target, and so does this one.
void of_targets(const HostArguments& call) {
  const at::Tensor scores = call.tensor("self"), all = call.tensor("target");
  const at::Tensor targets = at::masked_select(all, at::ne(all, call.integer("ignore_index")));
  if (targets.numel() == 0) return;
  const int64_t classes = scores.size(scores.dim() == 1 ? 0 : 1);
  const auto [least, greatest] = at::aminmax(targets);
  const int64_t low = least.item<int64_t>(), high = greatest.item<int64_t>();
  TORCH_CHECK_INDEX(low >= 0 && high < classes, "Target ", low < 0 ? low : high, " is out of bounds.");
}

}  // namespace

IndexGuard index_guard(const graph::Signature& signature) {
  const std::string& name = signature.name;
  if (name == "aten::embedding_dense_backward") return of_table;
  if (name == "aten::_embedding_bag_backward" || name == "aten::_embedding_bag_dense_backward") return of_bags;
  if (name == "aten::_embedding_bag_per_sample_weights_backward") return of_weights_of_bags;
  if (name == "aten::nll_loss_backward" || name == "aten::nll_loss2d_backward") return of_targets;
  return nullptr;
}

}  // namespace tpjrt::engine
