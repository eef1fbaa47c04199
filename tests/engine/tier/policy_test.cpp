// Which runs of a graph are interpreted.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "../../graph/recording.h"
#include "engine/tier/policy.h"

namespace tpjrt::engine::test {
namespace {

using graph::Value;
using graph::test::call;
using graph::test::f32;
using graph::test::leaf;
using graph::test::Tensor;
using graph::test::walked;

Tensor chain(const std::vector<std::string>& calls, c10::IntArrayRef sizes = {2}) {
  Value x = leaf(f32(sizes));
  for (const std::string& name : calls) x = call(name, {x});
  return Tensor(x);
}

using TierDecision = GraphProfiles::TierDecision;

TierDecision decide(GraphProfiles& graphs, const Tensor& tensor) {
  return graphs.decide(*graphs.count_execution(walked(tensor), InterpretBy::kKernels));
}

bool takes_calls(GraphProfiles& graphs, const Tensor& tensor) {
  return decide(graphs, tensor) != TierDecision::kProgram;
}

Cost cost_of(const Tensor& tensor, InterpretBy by = InterpretBy::kKernels) {
  return predicted_cost(work_of(walked(tensor), by), prices_of(by));
}

// Runs the graph until its program takes over. Returns the number of runs, and the run in which the compile began (0:
// none).
std::pair<int64_t, int64_t> runs(GraphProfiles& graphs, const Tensor& tensor) {
  int64_t count = 0, begun = 0;
  while (true) {
    const TierDecision now = decide(graphs, tensor);
    if (now == TierDecision::kProgram) return {count, begun};
    ++count;
    if (now == TierDecision::kInterpretAndCompile) {
      EXPECT_EQ(begun, 0);
      begun = count;
    }
  }
}

Tensor alternating(const std::string& first, const std::string& second) {
  std::vector<std::string> calls;
  for (int i = 0; i < 10; ++i) calls.insert(calls.end(), {first, second});
  return chain(calls);
}
Tensor pair() { return alternating("tier a", "tier b"); }
Tensor reversed_pair() { return alternating("tier b", "tier a"); }

TEST(Tiers, AProgramIsBoughtWhenItsPriceIsPaid) {
  GraphProfiles graphs(1);
  const Cost cost = cost_of(pair());
  const auto [count, begun] = runs(graphs, pair());
  EXPECT_GT(count, 1);
  EXPECT_EQ(begun, 0);
  EXPECT_LT(count * cost.rent, cost.compile);
  EXPECT_GE((count + 1) * cost.rent, cost.compile);
  EXPECT_FALSE(takes_calls(graphs, pair())) << "once amortized, always";
}

TEST(Tiers, AnotherProcessorBeginsEarlierAndTakesOverAtTheSameRun) {
  GraphProfiles one(1), two(2);
  const Cost cost = cost_of(pair());
  const auto [count, begun] = runs(two, pair());
  EXPECT_EQ(count, runs(one, pair()).first);
  EXPECT_LT((begun - 1) * cost.rent, cost.compile / 4);
  EXPECT_GE(begun * cost.rent, cost.compile / 4);
}

TEST(Tiers, ToldIsWhatComes) {
  for (const int processors : {1, 2}) {
    GraphProfiles graphs(processors);
    const graph::Walk walk = walked(pair());
    EXPECT_EQ(graphs.decide(*graphs.count_execution(walk, InterpretBy::kKernels)), TierDecision::kInterpret);
    const std::string description = graphs.description(*graphs.count_execution(walk, InterpretBy::kKernels));
    GraphProfiles others(processors);
    EXPECT_NEAR(std::stod(description.substr(description.find("of") + 3)),
                static_cast<double>(runs(others, pair()).first), 3);
  }
}

TEST(Tiers, AnotherGraphPaysForItself) {
  GraphProfiles graphs(1);
  (void)runs(graphs, pair());
  EXPECT_TRUE(takes_calls(graphs, reversed_pair()));
}

TEST(Costs, ListsCountTheirTensors) {
  const auto tensors = [](size_t count) {
    auto* lists = new graph::Signature;  // lives as long as the process
    lists->name = "aten::_foreach_neg";
    lists->operands = lists->results = std::vector(count, f32({8}));
    c10::SmallVector<Value, 3> operands(count, leaf(f32({8})));
    c10::SmallVector<graph::ScalarValue, 2> none;
    const Tensor tensor(Value{graph::make_node(lists, operands, none), 0});
    return work_of(walked(tensor), InterpretBy::kKernels).tensors;
  };
  EXPECT_EQ(tensors(100), 100 * tensors(1));
}

TEST(Costs, ProductsPayNoRentForTheirMultiplications) {
  const auto rent = [](InterpretBy by, int64_t n, int calls) {
    Value x = leaf(f32({n, n}));
    for (int i = 0; i < calls; ++i) x = call("aten::mm", {x, leaf(f32({n, n}))});
    return cost_of(Tensor(x), by).rent;
  };
  for (const InterpretBy by : {InterpretBy::kKernels, InterpretBy::kCudaKernels}) {
    EXPECT_EQ(rent(by, 1024, 50), rent(by, 2, 50));
    EXPECT_GT(rent(by, 2, 50), rent(by, 2, 25));
  }
}

TEST(Costs, WhatComesAgainIsCompiledForLess) {
  EXPECT_LT(cost_of(chain({"tier a", "tier a"})).compile, cost_of(chain({"tier a", "tier b"})).compile);
}

TEST(Tiers, WhatIsLargeIsNotCopiedToTheHost) {
  const auto decide = [](int64_t size) {
    GraphProfiles graphs;
    return graphs.decide(*graphs.count_execution(walked(chain({"tier j", "tier k"}, {size})), InterpretBy::kCopies));
  };
  EXPECT_EQ(decide(2), TierDecision::kInterpret);
  EXPECT_EQ(decide(1 << 28), TierDecision::kProgram) << "copies cost more than a compile";
}

TEST(Tiers, ACallOfFewIntegers) {
  const auto is_one = [](c10::ScalarType dtype, c10::IntArrayRef sizes, const char* name) {
    const graph::TypePtr type = graph::intern_contiguous(dtype, sizes);
    return is_of_few_integers(*call(name, {leaf(type)}).node);
  };
  EXPECT_TRUE(is_one(c10::kLong, {16}, "aten::neg"));
  EXPECT_TRUE(is_one(c10::kBool, {16}, "pjrt::convert"));
  EXPECT_FALSE(is_one(c10::kFloat, {16}, "aten::neg"));
  EXPECT_FALSE(is_one(c10::kLong, {2048}, "aten::neg"));
  EXPECT_FALSE(is_one(c10::kLong, {16}, "pjrt::loop"));
}

}  // namespace
}  // namespace tpjrt::engine::test
