// The table of costs (Note [Costs]). `./dev bench costs` reports its errors.
#include "engine/tier/policy.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Signature;
using graph::SignaturePtr;
using graph::TypePtr;

// Costs of a run by PyTorch's kernels or within a program, in ns: of a call, of an element, and of a multiply-add.
struct Run {
  double call, element, product = 0;
};

enum class Size : uint8_t { kLargest, kResults, kAll, kScores };  // the elements that count

struct Kind {
  std::vector<std::string_view> names;  // parts of op names; the first kind with a match counts
  double compile;                       // milliseconds for each call
  Run calls, program;
  Size size = Size::kLargest;
  bool harder_backward = false;
};

// Measured on one processor of an AMD EPYC with AVX-512, with XLA:CPU.
constexpr double kCompileGraph = 17, kAgain = 0.3, kBackward = 4;
constexpr double kCallsOfGraph = 1300, kProgramOfGraph = 1700, kArgument = 330, kLaunch = 50'000;
// CUDA, from the first measurements on one H100 (docs/plugins.md): a kernel of eager and one within a program, a list's
// tensor, an element, a multiplication, and XLA:GPU's compile time as a multiple of XLA:CPU's.
constexpr Run kCudaCalls{8000, 0.004, 4e-5}, kCudaProgram{2000, 0.002, 4e-5};
constexpr double kCudaListed = 300, kCudaCompile = 2;
constexpr double kCopy = 10'000, kCopyByte = 1;  // between the host and a device: PCIe, not measured here
constexpr double kRecord = 5000, kRecordTensor = 2000, kList = 5000;

enum : uint8_t {
  kMemory,
  kLists,
  kRecurrent,
  kAttention,
  kConvolution,
  kRandom
};  // kinds whose costs are computed by formulas of their own

const std::vector<Kind>& kinds() {
  static const auto* table = new std::vector<Kind>{
      {{"pjrt::view", "pjrt::empty", "pjrt::convert"}, 9, {1200, 0}, {1800, 0}},
      {{"_foreach_", "fused_ad", "fused_sgd"}, 1.9, {1500, 0.055}, {630, 0.07}, Size::kAll},
      {{"recurrent", "_cell"}, 165, {9500, 2.5}, {3300, 5}},
      {{"attention"}, 130, {25'000, 2.1}, {2000, 1.2}, Size::kScores, true},
      {{"convolution"}, 33, {19'000, 0.3, 0.0128}, {1800, 0.085, 0.0226}, Size::kAll, true},
      {{}, 88, {5000, 3}, {1000, 19}},  // kRandom
      {{"while", "pjrt::if", "composite"}, 100, {50'000, 1}, {20'000, 1}},
      {{"sort", "topk", "linalg", "fft", "unique"}, 47, {3000, 20}, {1000, 20}},
      {{"norm", "softmax", "nll_loss", "cross_entropy", "cum", "std", "var"},
       42,
       {2700, 0.5},
       {9000, 0.4},
       Size::kLargest,
       true},
      {{"pool", "upsample", "grid"}, 20, {20'000, 2}, {20'000, 2.7}, Size::kLargest, true},
      {{"embedding", "index", "gather", "scatter"}, 110, {8000, 2}, {500, 0.1}, Size::kResults, true},
      {{"mm", "linear", "einsum", "::dot", "::mv", "addmv"}, 19, {1500, 0, 0.02}, {1300, 0, 0.0085}},
      {{"::sum", "::mean", "::prod", "amax", "amin", "::max", "::min", "argm", "::any", "::all", "_loss"},
       17,
       {4000, 0.15},
       {500, 0.05}},
      {{"::sin", "::cos"}, 35, {2500, 0.72}, {850, 0.67}},
      {{"exp", "log", "tanh", "sigmoid", "silu", "gelu", "pow", "erf"}, 5, {2500, 0.72}, {850, 0.67}},
      {{""}, 5.5, {1000, 0.3}, {200, 0.05}},
  };
  return *table;
}

size_t kind_of(const Signature& s) {
  for (size_t i = 0; i < kinds().size(); ++i) {
    if (i == kRandom && s.random) return i;
    for (const std::string_view name : kinds()[i].names) {
      if (s.name.find(name) != s.name.npos) return i;
    }
  }
  return kinds().size() - 1;
}

double numel(TypePtr type) { return type ? static_cast<double>(type->numel()) : 0; }

double last_but(TypePtr type, size_t from_end) {
  const size_t dims = type->sizes.size();
  return dims >= from_end ? static_cast<double>(type->sizes[dims - from_end]) : 1;
}

bool is_backward(const Signature& s) { return s.name.find("backward") != s.name.npos; }

double elements(const Signature& s, Size size) {
  double largest = 0, results = 0, all = 0;
  for (const TypePtr type : s.results) {
    results = std::max(results, numel(type));
    all += numel(type);
  }
  largest = results;
  for (const TypePtr type : s.operands) {
    largest = std::max(largest, numel(type));
    all += numel(type);
  }
  if (size == Size::kScores) {  // each query with each key
    const size_t query = is_backward(s) ? 1 : 0;
    if (s.operands.size() < query + 2) return largest;
    const TypePtr q = s.operands[query];
    return (is_backward(s) ? 3 : 1) * numel(q) * last_but(s.operands[query + 1], 2) / std::max(1.0, last_but(q, 1));
  }
  return size == Size::kResults ? results : size == Size::kAll ? all : largest;
}

// Counts multiplications. In a product of matrices, each of three matrices (two operands, and a third or a result) has
// two of the three dimensions. In a convolution, each element of the result is multiplied with the weights of one
// channel. A backward has one product for each result.
double products(const Signature& s, size_t kind) {
  std::vector<TypePtr> matrices;
  double results = 0;
  for (const auto* types : {&s.operands, &s.results}) {
    for (const TypePtr type : *types) {
      if (!type || type->sizes.empty()) continue;
      const bool is_bias = type->sizes.size() == 1 && kind == kConvolution;
      if (!is_bias) matrices.push_back(type);
      results += types == &s.results && type->sizes.size() > 1 ? 1 : 0;
    }
  }
  if (matrices.size() < 3) return matrices.size() == 2 ? std::max(numel(matrices[0]), numel(matrices[1])) : 0;
  if (kind == kConvolution) {
    const TypePtr weight = matrices[is_backward(s) ? 2 : 1], out = matrices[is_backward(s) ? 0 : 2];
    return (is_backward(s) ? 2 : 1) * numel(out) * numel(weight) /
           std::max<double>(1, static_cast<double>(weight->sizes[0]));
  }
  std::ranges::sort(matrices, std::greater<>{}, numel);  // puts a bias last
  return std::max(1.0, is_backward(s) ? results : 1) *
         std::sqrt(numel(matrices[0]) * numel(matrices[1]) * numel(matrices[2]));
}

struct CallCost {
  double compile, again, record, calls, program;
  double cuda_calls = 0, cuda_program = 0;
};

CallCost cost_of(const Signature& s) {
  const size_t number = kind_of(s);
  const Kind& kind = kinds()[number];
  const double size = number == kMemory ? 0 : elements(s, kind.size);
  const double many = kind.calls.product > 0 ? products(s, number) : 0;
  double compiled = kind.compile * (kind.harder_backward && is_backward(s) ? kBackward : 1), times = 1;
  CallCost cost{0, 0, kRecord, 0, 0};
  if (number == kLists) {
    const std::vector<TypePtr>& list = s.results.empty() ? s.operands : s.results;
    const std::unordered_set<TypePtr> types(list.begin(), list.end());
    times = static_cast<double>(list.size());
    compiled *= static_cast<double>(types.size()) + kAgain * static_cast<double>(list.size() - types.size());
    cost.record += times * kRecordTensor;
    cost.calls = kList;
  } else if (number == kRecurrent && !s.operands.empty() && !s.operands[0]->sizes.empty()) {
    times = static_cast<double>(s.operands[0]->sizes[0]) * (is_backward(s) ? 2 : 1);
  }
  const auto run = [&](const Run& one) { return times * one.call + size * one.element + many * one.product; };
  cost.compile = compiled * 1e6;
  cost.again = cost.compile * kAgain;
  cost.calls += run(kind.calls);
  cost.program = run(kind.program);
  const auto on_cuda = [&](const Run& one) {
    if (number == kMemory) return one.element * elements(s, kind.size);
    const double listed = number == kLists ? times * kCudaListed : 0;
    return (number == kRecurrent ? times : 1) * one.call + listed + size * one.element + many * one.product;
  };
  cost.cuda_calls = on_cuda(kCudaCalls);
  cost.cuda_program = on_cuda(kCudaProgram);
  return cost;
}

// Cached for the life of the process, like signatures.
const CallCost& known_cost(SignaturePtr signature) {
  static auto* lock = new std::mutex;
  static auto* costs = new std::unordered_map<SignaturePtr, CallCost>;
  const std::lock_guard guard(*lock);
  const auto it = costs->find(signature);
  return it != costs->end() ? it->second : costs->emplace(signature, cost_of(*signature)).first->second;
}

constexpr int64_t kMostFew = 1024;  // elements

}  // namespace

Cost predicted_cost(const graph::Walk& walk, InterpretBy by) {
  CallCost sum{kCompileGraph * 1e6, 0, 0, 0, kProgramOfGraph};
  sum.program += kArgument * static_cast<double>(walk.leaves.size() + walk.results.size());
  std::unordered_set<SignaturePtr> seen;
  for (const Node* node : walk.nodes) {
    const CallCost& call = known_cost(node->signature);
    sum.compile += seen.insert(node->signature).second ? call.compile : call.again;
    sum.record += call.record;
    const bool on_cuda = by == InterpretBy::kCudaKernels;
    sum.calls += on_cuda ? call.cuda_calls : call.calls;
    sum.program += on_cuda ? call.cuda_program : call.program;
  }
  if (by == InterpretBy::kCudaKernels) {
    sum.compile *= kCudaCompile;
    sum.program += kLaunch;
  } else {
    sum.calls += kCallsOfGraph;
  }
  if (by == InterpretBy::kCopies) {
    const auto copied = [&](TypePtr type) {
      sum.calls += type ? kCopy + kCopyByte * static_cast<double>(type->nbytes()) : 0;
    };
    for (const graph::NodePtr& leaf : walk.leaves) copied(leaf->leaf_type);
    for (const graph::Value& result : walk.results) copied(result.node->signature->results[result.index]);
    sum.program += kLaunch;
  }
  return {static_cast<int64_t>(sum.compile), static_cast<int64_t>(sum.record), static_cast<int64_t>(sum.calls),
          static_cast<int64_t>(sum.program)};
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
