// The table of costs, fitted by `./dev bench first_minute`.
#include "engine/tier/cost.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::TypePtr;

// XLA:CPU on two cores.
constexpr int64_t kCompileGraph = 15'000'000;  // of any graph
constexpr int64_t kCompileCall = 12'000'000;   // a loop in LLVM, or a share of one
constexpr int64_t kCompileHeavy =
    50'000'000;  // contractions, sorts, scatters, windows, loops: programs within the program
// PyTorch's kernels.
constexpr int64_t kCall = 20'000;
constexpr double kBytesInNs = 4.0;
constexpr double kFlopsInNs = 30.0;

bool contains(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return name.find(part) != name.npos; });
}

bool is_contraction(std::string_view name) {
  return contains(name, {"mm", "linear", "conv", "attention", "einsum", "bilinear", "dot"});
}

bool is_heavy(const Node& node) {
  const std::string_view name = node.signature->name;
  return is_contraction(name) || node.signature->random ||
         contains(name, {"sort", "topk", "scatter", "index", "pool", "norm", "cum", "linalg", "fft", "foreach", "fused",
                         "while", "if", "composite", "recurrent", "embedding", "upsample", "grid"});
}

// Of a contraction, twice the product of all dimensions: each element of the result is a sum over what the operands have more.
double flops(const Node& node) {
  const graph::Signature& s = *node.signature;
  if (!is_contraction(s.name) || s.operands.size() < 2) return 0;
  double in = 1;
  for (size_t i = 0; i < 2; ++i) in *= static_cast<double>(std::max<int64_t>(s.operands[i]->numel(), 1));
  double out = 1;
  for (const TypePtr type : s.results) {
    if (type) out = std::max(out, static_cast<double>(type->numel()));
  }
  return 2 * std::sqrt(in * out);
}

double bytes(const Node& node) {
  double sum = 0;
  for (const TypePtr type : node.signature->operands) sum += static_cast<double>(type->nbytes());
  for (const TypePtr type : node.signature->results) sum += type ? static_cast<double>(type->nbytes()) : 0;
  return sum;
}

}  // namespace

Cost predicted_cost(const graph::Walk& walk) {
  Cost cost{kCompileGraph, 0};
  for (const Node* node : walk.nodes) {
    cost.compile_ns += is_heavy(*node) ? kCompileHeavy : kCompileCall;
    cost.by_calls_ns += kCall + static_cast<int64_t>(bytes(*node) / kBytesInNs + flops(*node) / kFlopsInNs);
  }
  return cost;
}

}  // namespace tpjrt::engine
