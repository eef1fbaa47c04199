// The backwards of embeddings.
#include "engine/run/kernel/index_guard.h"

#include <ATen/ops/aminmax.h>
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

}  // namespace

IndexGuard index_guard(const graph::Signature& signature) {
  const std::string& name = signature.name;
  if (name == "aten::embedding_dense_backward") return of_table;
  if (name == "aten::_embedding_bag_backward" || name == "aten::_embedding_bag_dense_backward") return of_bags;
  if (name == "aten::_embedding_bag_per_sample_weights_backward") return of_weights_of_bags;
  return nullptr;
}

}  // namespace tpjrt::engine
