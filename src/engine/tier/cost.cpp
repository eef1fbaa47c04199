// Predicted costs (Note [Tiers]). `./dev bench costs` measures the prices.
#include <ATen/Version.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "engine/lower/call_lowering.h"
#include "engine/tier/policy.h"
#include "pjrt/memory.h"

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Signature;
using graph::SignaturePtr;
using graph::TypePtr;

constexpr Prices kAvx2{
#include "engine/tier/prices_avx2.inc"
};
constexpr Prices kAvx512{
#include "engine/tier/prices_avx512.inc"
};
constexpr Prices kCuda{
#include "engine/tier/prices_cuda.inc"
};

double nbytes(TypePtr type) { return type ? static_cast<double>(type->nbytes()) : 0; }

// Returns what one call adds to a graph that has no equal call.
Work work_of(const Signature& s) {
  const auto* lowering = static_cast<const CallLowering*>(s.lowering.get());
  Work work{.ops = s.op && lowering ? static_cast<double>(lowering->ops) : 1};
  if (is_of_memory(s)) return work;
  work.calls = 1;
  if (s.name.starts_with("aten::_foreach_") || s.name.starts_with("aten::_fused_")) {
    const std::vector<TypePtr>& list = s.results.empty() ? s.operands : s.results;
    const std::unordered_set<TypePtr> types(list.begin(), list.end());
    work.tensors = static_cast<double>(std::max<size_t>(1, list.size()));
    work.repeated = work.ops * (1 - static_cast<double>(types.size()) / work.tensors);
    work.ops -= work.repeated;
  }
  for (const TypePtr type : s.results) work.largest = std::max(work.largest, nbytes(type));
  if (s.op && s.op->hasTag(at::Tag::pointwise)) {
    for (const TypePtr type : s.operands) work.bytes += nbytes(type);
    for (const TypePtr type : s.results) work.bytes += nbytes(type);
  }
  return work;
}

constexpr int64_t kMostFew = 1024;  // elements

}  // namespace

Work work_of(const graph::Walk& walk, InterpretBy by) {
  Work sum{.arguments = static_cast<double>(walk.leaves.size() + walk.results.size())};
  std::unordered_set<SignaturePtr> seen;
  for (const Node* node : walk.nodes) {
    const Work call = work_of(*node->signature);
    sum.calls += call.calls;
    sum.tensors += call.tensors;
    sum.bytes += call.bytes;
    sum.repeated += call.repeated;
    sum.largest = std::max(sum.largest, call.largest);
    (seen.insert(node->signature).second ? sum.ops : sum.repeated) += call.ops;
  }
  if (by == InterpretBy::kCopies) {
    sum.copies = sum.arguments;
    for (const graph::NodePtr& leaf : walk.leaves) sum.copied += nbytes(leaf->leaf_type);
    for (const graph::Value& result : walk.results) {
      sum.copied += nbytes(result.node->signature->results[result.index]);
    }
  }
  return sum;
}

const Prices& prices_of(InterpretBy by) {
  static const bool has_avx512 = at::get_cpu_capability() == "AVX512";
  return by == InterpretBy::kCudaKernels ? kCuda : has_avx512 ? kAvx512 : kAvx2;
}

Cost predicted_cost(const Work& work, const Prices& price) {
  const double compile = price.graph + price.op * work.ops + price.repeated_op * work.repeated;
  const double calls = price.call * work.calls + price.tensor * work.tensors + price.byte * work.bytes +
                       price.copy * work.copies + price.copied_byte * work.copied;
  const double program = price.launch + price.argument * work.arguments;
  static const auto memory = static_cast<double>(pjrt::host_memory().total);
  // An interpreted run would fail after it has written over some tensors, a program fails before.
  if (work.largest > memory) return {static_cast<int64_t>(compile), static_cast<int64_t>(compile)};
  return {static_cast<int64_t>(compile), static_cast<int64_t>(std::max(0.0, calls - program))};
}

bool is_of_memory(const Signature& s) {
  return s.name == "pjrt::empty" || s.name == "pjrt::convert" || s.name == "pjrt::view" || s.name == "pjrt::write";
}

bool is_of_few_integers(const Node& node) {
  const auto is_few = [](TypePtr type) {
    return type && c10::isIntegralType(type->dtype, /*includeBool=*/true) && type->numel() <= kMostFew;
  };
  const Signature& s = *node.signature;
  if (s.random || s.results.empty()) return false;
  if (!std::ranges::all_of(s.operands, is_few) || !std::ranges::all_of(s.results, is_few)) return false;
  if (!s.op) return is_of_memory(s);
  return s.name.starts_with("aten::") &&
         std::ranges::none_of(s.parameters, [](const graph::Parameter& p) { return p.constant.isDevice(); });
}

}  // namespace tpjrt::engine
