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

Tensor pair() { return chain({"tier a", "tier b"}, {1 << 16}); }
Tensor reversed_pair() { return chain({"tier b", "tier a"}, {1 << 16}); }

TEST(Tiers, OneProcessorCompilesWhatWouldHavePaid) {
  GraphProfiles graphs(1);
  const Cost cost = predicted_cost(walked(pair()), InterpretBy::kKernels);
  const auto [count, begun] = runs(graphs, pair());
  EXPECT_GT(count, 1);
  EXPECT_EQ(begun, 0);
  EXPECT_LT(count * (cost.calls - cost.program), cost.compile);
  EXPECT_GE((count + 1) * (cost.calls - cost.program), cost.compile);
  EXPECT_FALSE(takes_calls(graphs, pair())) << "once amortized, always";
}

TEST(Tiers, TheSwitchComesWhenTheProgramShouldBeThere) {
  GraphProfiles graphs(2);
  const Cost cost = predicted_cost(walked(pair()), InterpretBy::kKernels);
  const auto [count, begun] = runs(graphs, pair());
  EXPECT_LT((begun - 1) * (cost.calls - cost.program), cost.compile / 4);
  EXPECT_GE(begun * (cost.calls - cost.program), cost.compile / 4);
  EXPECT_LT((count - begun) * (cost.record + cost.calls), cost.compile);
  EXPECT_GE((count - begun + 1) * (cost.record + cost.calls), cost.compile);
}

TEST(Tiers, ProgramsThatRunMeanwhileCount) {
  GraphProfiles graphs(2);
  const Cost cost = predicted_cost(walked(pair()), InterpretBy::kKernels);
  while (decide(graphs, pair()) != TierDecision::kInterpretAndCompile) continue;
  EXPECT_TRUE(takes_calls(graphs, pair()));
  graphs.pass(cost.compile);
  EXPECT_FALSE(takes_calls(graphs, pair()));
}

TEST(Tiers, CompilesStandInARow) {
  GraphProfiles graphs(2);
  const Cost cost = predicted_cost(walked(pair()), InterpretBy::kKernels);
  while (decide(graphs, pair()) != TierDecision::kInterpretAndCompile) continue;
  while (decide(graphs, reversed_pair()) != TierDecision::kInterpretAndCompile) continue;
  graphs.pass(cost.compile);
  EXPECT_FALSE(takes_calls(graphs, pair()));
  EXPECT_TRUE(takes_calls(graphs, reversed_pair()));
  graphs.pass(cost.compile);
  EXPECT_FALSE(takes_calls(graphs, reversed_pair()));
}

TEST(Tiers, WhatNoProgramWouldSaveIsNeverCompiled) {
  GraphProfiles graphs(2);
  const graph::TypePtr image = f32({4, 64, 56, 56}), weight = f32({64, 64, 3, 3});
  Value x = leaf(image);
  for (int i = 0; i < 4; ++i) x = call("aten::convolution", {x, leaf(weight)});
  const Tensor tensor(x);
  const Cost cost = predicted_cost(walked(tensor), InterpretBy::kKernels);
  EXPECT_GT(cost.program, cost.calls);
  for (int64_t i = 0; i < 10 * cost.compile / cost.calls; ++i) {
    ASSERT_EQ(decide(graphs, tensor), TierDecision::kInterpret);
  }
  const graph::Walk walk = walked(tensor);
  EXPECT_EQ(graphs.description(*graphs.count_execution(walk, InterpretBy::kKernels)).find("of"), std::string::npos);
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
  const auto cost = [](size_t count) {
    auto* lists = new graph::Signature;  // lives as long as the process
    lists->name = "aten::_foreach_neg";
    lists->operands = lists->results = std::vector(count, f32({8}));
    c10::SmallVector<Value, 3> operands(count, leaf(f32({8})));
    c10::SmallVector<graph::ScalarValue, 2> none;
    return predicted_cost(walked(Tensor(Value{graph::make_node(lists, operands, none), 0})), InterpretBy::kKernels);
  };
  EXPECT_GT(cost(100).calls, 20 * cost(1).calls / 2);
  EXPECT_GT(cost(100).record, 10 * cost(1).record);
}

TEST(Costs, ProductsTakeTheirMultiplications) {
  const auto cost = [](int64_t n) {
    const graph::TypePtr type = f32({n, n});
    return predicted_cost(walked(Tensor(call("aten::mm", {leaf(type), leaf(type)}))), InterpretBy::kKernels).calls;
  };
  EXPECT_NEAR(static_cast<double>(cost(1024)) / static_cast<double>(cost(512)), 8, 0.2);
}

TEST(Costs, WhatComesAgainIsCompiledForLess) {
  const auto compile = [](const std::vector<std::string>& calls) {
    return predicted_cost(walked(chain(calls)), InterpretBy::kKernels).compile;
  };
  EXPECT_LT(compile({"tier a", "tier a"}), compile({"tier a", "tier b"}));
}

TEST(Costs, OnCudaAProgramSavesLaunchesAndNoProducts) {
  const auto cost = [](int64_t size) {
    const graph::TypePtr type = graph::intern_contiguous(c10::kFloat, {size, size});
    return predicted_cost(walked(Tensor(call("aten::mm", {leaf(type), leaf(type)}))), InterpretBy::kCudaKernels);
  };
  EXPECT_LT(cost(1 << 14).calls, 2 * cost(1 << 14).program) << "eager's are as fast";
  EXPECT_GT(cost(1 << 14).calls, 1000 * cost(16).calls);
  const Cost many = predicted_cost(walked(chain(std::vector<std::string>(50, "tier z"))), InterpretBy::kCudaKernels);
  EXPECT_GT(many.calls, 2 * many.program);
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
