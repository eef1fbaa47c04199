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

using Turn = MetGraphs::Turn;

Turn turn(MetGraphs& graphs, const Tensor& tensor, CallsBy by) {
  const graph::Walk walk = walked(tensor);
  return graphs.turn(walk, *graphs.meet(walk, by), by);
}

bool takes_calls(MetGraphs& graphs, const Tensor& tensor, CallsBy by) {
  return turn(graphs, tensor, by) != Turn::kProgram;
}

// Runs the graph until its program takes over. Returns the number of runs, and the run in which the compile began (0:
// none).
std::pair<int64_t, int64_t> runs(MetGraphs& graphs, const Tensor& tensor) {
  int64_t count = 0, begun = 0;
  while (true) {
    const Turn now = turn(graphs, tensor, CallsBy::kKernels);
    if (now == Turn::kProgram) return {count, begun};
    ++count;
    if (now == Turn::kCallsAndBegin) {
      EXPECT_EQ(begun, 0);
      begun = count;
    }
  }
}

Tensor pair() { return chain({"tier a", "tier b"}, {1 << 16}); }
Tensor reversed_pair() { return chain({"tier b", "tier a"}, {1 << 16}); }

TEST(Tiers, OneProcessorCompilesWhatWouldHavePaid) {
  MetGraphs graphs(1);
  const Cost cost = predicted_cost(walked(pair()), CallsBy::kKernels);
  const auto [count, begun] = runs(graphs, pair());
  EXPECT_GT(count, 1);
  EXPECT_EQ(begun, 0);
  EXPECT_LT(count * (cost.calls - cost.program), cost.compile);
  EXPECT_GE((count + 1) * (cost.calls - cost.program), cost.compile);
  EXPECT_FALSE(takes_calls(graphs, pair(), CallsBy::kKernels)) << "once paid, always";
}

TEST(Tiers, TheSwitchComesWhenTheProgramShouldBeThere) {
  MetGraphs graphs(2);
  const Cost cost = predicted_cost(walked(pair()), CallsBy::kKernels);
  const auto [count, begun] = runs(graphs, pair());
  EXPECT_LT((begun - 1) * (cost.calls - cost.program), cost.compile / 4);
  EXPECT_GE(begun * (cost.calls - cost.program), cost.compile / 4);
  EXPECT_LT((count - begun) * (cost.record + cost.calls), cost.compile);
  EXPECT_GE((count - begun + 1) * (cost.record + cost.calls), cost.compile);
}

TEST(Tiers, ProgramsThatRunMeanwhileCount) {
  MetGraphs graphs(2);
  const Cost cost = predicted_cost(walked(pair()), CallsBy::kKernels);
  while (turn(graphs, pair(), CallsBy::kKernels) != Turn::kCallsAndBegin) continue;
  EXPECT_TRUE(takes_calls(graphs, pair(), CallsBy::kKernels));
  graphs.pass(cost.compile);
  EXPECT_FALSE(takes_calls(graphs, pair(), CallsBy::kKernels));
}

TEST(Tiers, CompilesStandInARow) {
  MetGraphs graphs(2);
  const Cost cost = predicted_cost(walked(pair()), CallsBy::kKernels);
  while (turn(graphs, pair(), CallsBy::kKernels) != Turn::kCallsAndBegin) continue;
  while (turn(graphs, reversed_pair(), CallsBy::kKernels) != Turn::kCallsAndBegin) continue;
  graphs.pass(cost.compile);
  EXPECT_FALSE(takes_calls(graphs, pair(), CallsBy::kKernels));
  EXPECT_TRUE(takes_calls(graphs, reversed_pair(), CallsBy::kKernels));
  graphs.pass(cost.compile);
  EXPECT_FALSE(takes_calls(graphs, reversed_pair(), CallsBy::kKernels));
}

TEST(Tiers, WhatNoProgramWouldSaveIsNeverCompiled) {
  MetGraphs graphs(2);
  const graph::TypePtr image = f32({4, 64, 56, 56}), weight = f32({64, 64, 3, 3});
  Value x = leaf(image);
  for (int i = 0; i < 4; ++i) x = call("aten::convolution", {x, leaf(weight)});
  const Tensor tensor(x);
  const Cost cost = predicted_cost(walked(tensor), CallsBy::kKernels);
  EXPECT_GT(cost.program, cost.calls);
  for (int64_t i = 0; i < 10 * cost.compile / cost.calls; ++i) {
    ASSERT_EQ(turn(graphs, tensor, CallsBy::kKernels), Turn::kCalls);
  }
  const graph::Walk walk = walked(tensor);
  EXPECT_EQ(graphs.told(*graphs.meet(walk, CallsBy::kKernels)).find("of"), std::string::npos);
}

TEST(Tiers, ToldIsWhatComes) {
  for (const int processors : {1, 2}) {
    MetGraphs graphs(processors);
    const graph::Walk walk = walked(pair());
    EXPECT_EQ(graphs.turn(walk, *graphs.meet(walk, CallsBy::kKernels), CallsBy::kKernels), Turn::kCalls);
    const std::string told = graphs.told(*graphs.meet(walk, CallsBy::kKernels));
    MetGraphs others(processors);
    EXPECT_NEAR(std::stod(told.substr(told.find("of") + 3)), static_cast<double>(runs(others, pair()).first), 3);
  }
}

TEST(Tiers, AnotherGraphPaysForItself) {
  MetGraphs graphs(1);
  (void)runs(graphs, pair());
  EXPECT_TRUE(takes_calls(graphs, reversed_pair(), CallsBy::kKernels));
}

TEST(Costs, ListsCountTheirTensors) {
  const auto cost = [](size_t count) {
    auto* lists = new graph::Signature;  // lives as long as the process
    lists->name = "aten::_foreach_neg";
    lists->operands = lists->results = std::vector(count, f32({8}));
    c10::SmallVector<Value, 3> operands(count, leaf(f32({8})));
    c10::SmallVector<graph::Number, 2> none;
    return predicted_cost(walked(Tensor(Value{graph::make_node(lists, operands, none), 0})), CallsBy::kKernels);
  };
  EXPECT_GT(cost(100).calls, 20 * cost(1).calls / 2);
  EXPECT_GT(cost(100).record, 10 * cost(1).record);
}

TEST(Costs, ProductsTakeTheirMultiplications) {
  const auto cost = [](int64_t n) {
    const graph::TypePtr type = f32({n, n});
    return predicted_cost(walked(Tensor(call("aten::mm", {leaf(type), leaf(type)}))), CallsBy::kKernels).calls;
  };
  EXPECT_NEAR(static_cast<double>(cost(1024)) / static_cast<double>(cost(512)), 8, 0.2);
}

TEST(Costs, WhatComesAgainIsCompiledForLess) {
  const auto compile = [](const std::vector<std::string>& calls) {
    return predicted_cost(walked(chain(calls)), CallsBy::kKernels).compile;
  };
  EXPECT_LT(compile({"tier a", "tier a"}), compile({"tier a", "tier b"}));
}

TEST(Costs, OnCudaAProgramSavesLaunchesAndNoProducts) {
  const auto cost = [](int64_t size) {
    const graph::TypePtr type = graph::intern_contiguous(c10::kFloat, {size, size});
    return predicted_cost(walked(Tensor(call("aten::mm", {leaf(type), leaf(type)}))), CallsBy::kCudaKernels);
  };
  EXPECT_LT(cost(1 << 14).calls, 2 * cost(1 << 14).program) << "eager's are as fast";
  EXPECT_GT(cost(1 << 14).calls, 1000 * cost(16).calls);
  const Cost many = predicted_cost(walked(chain(std::vector<std::string>(50, "tier z"))), CallsBy::kCudaKernels);
  EXPECT_GT(many.calls, 2 * many.program);
}

class OwnMemory : public testing::TestWithParam<CallsBy> {};
INSTANTIATE_TEST_SUITE_P(Tiers, OwnMemory, testing::Values(CallsBy::kPrograms, CallsBy::kEither));

TEST_P(OwnMemory, ANewGraphIsCompiledWhole) {
  MetGraphs graphs;
  EXPECT_FALSE(takes_calls(graphs, chain({"tier c", "tier d", "tier e"}), GetParam()));
}

TEST_P(OwnMemory, KnownCallsInNewOrdersAreNotCompiledWholeForEver) {
  MetGraphs graphs;
  const std::vector<std::vector<std::string>> orders{{"tier f", "tier g", "tier h"}, {"tier g", "tier h", "tier f"},
                                                     {"tier h", "tier f", "tier g"}, {"tier h", "tier g", "tier f"},
                                                     {"tier f", "tier h", "tier g"}, {"tier g", "tier f", "tier h"}};
  std::vector<bool> by_calls;
  for (const auto& order : orders) by_calls.push_back(takes_calls(graphs, chain(order), GetParam()));
  EXPECT_FALSE(by_calls.front());
  EXPECT_TRUE(by_calls[3]);
  EXPECT_TRUE(by_calls.back());
}

TEST(Tiers, KnownCallsBuyNoProgramsUntilTheyPay) {
  MetGraphs graphs;
  const Tensor order = chain({"tier l", "tier l", "tier l"});
  const graph::Walk walk = walked(order);
  for (const auto& [by, host] : {std::pair(CallsBy::kEither, true), {CallsBy::kPrograms, false}}) {
    for (int i = 0; i < 3; ++i) (void)graphs.turn(walk, *graphs.meet(walk, by), by);
    const graph::Walk other = walked(chain(std::vector<std::string>(20, "tier l")));
    MetGraph& graph = *graphs.meet(other, by);
    ASSERT_NE(graphs.turn(other, graph, by), Turn::kProgram);
    EXPECT_EQ(graph.on_host, std::vector<bool>(20, host));
  }
}

TEST(Tiers, ACallThatComesManyTimesInOneGraphIsAProgramOfItsOwn) {
  MetGraphs graphs;
  EXPECT_TRUE(takes_calls(graphs, chain(std::vector<std::string>(20, "tier i")), CallsBy::kPrograms));
}

TEST(Tiers, FewIntegersNeedNoProgram) {
  MetGraphs graphs;
  Value x = leaf(graph::intern_contiguous(c10::kLong, {16}));
  x = call("aten::neg", {call("aten::abs", {x})});
  EXPECT_TRUE(takes_calls(graphs, Tensor(x), CallsBy::kPrograms));
}

// Two calls: one of `width` elements, equal in each size, and one that grows.
Tensor growing(int64_t size, int64_t width = 2) {
  return Tensor(call("tier k", {call("tier j", {leaf(f32({width}))}, f32({width})), leaf(f32({size}))}, f32({size})));
}

// Returns which calls of a growing graph the host runs.
std::vector<bool> on_host(MetGraphs& graphs, int64_t size, int64_t width = 2) {
  const graph::Walk walk = walked(growing(size, width));
  MetGraph& graph = *graphs.meet(walk, CallsBy::kEitherGrowing);
  EXPECT_NE(graphs.turn(walk, graph, CallsBy::kEitherGrowing), Turn::kProgram);
  return graph.on_host;
}

TEST(Tiers, CallsThatGrowAreTheHostsUntilTheyPay) {
  MetGraphs graphs;
  constexpr int64_t kWidth = 1 << 18;
  const graph::Walk walk = walked(growing(1, kWidth));
  const graph::Node& first = *walk.nodes[0];
  ASSERT_EQ(first.signature->name, "tier j");
  const int64_t runs = (cost_alone(first) - 1) / (cost_on_host(first) - cost_launched(first));
  for (int64_t i = 1; i <= runs; ++i) EXPECT_EQ(on_host(graphs, i, kWidth), std::vector<bool>({true, true})) << i;
  EXPECT_EQ(on_host(graphs, runs + 1, kWidth), std::vector<bool>({false, true})) << "the first would have paid";
}

TEST(Tiers, CallsThatTheHostDoesInLessTimeStayThere) {
  MetGraphs graphs;
  for (int64_t i = 1; i <= 5000; ++i) ASSERT_EQ(on_host(graphs, i), std::vector<bool>({true, true})) << i;
}

TEST(Tiers, WhatGrowsIsCompiledWhereItIsLarge) {
  MetGraphs graphs;
  EXPECT_FALSE(takes_calls(graphs, growing(1 << 26, 1 << 26), CallsBy::kEitherGrowing))
      << "copies cost more than a compile";
}

TEST(Tiers, TheHostRunsOnlyWhatItHasAKernelFor) {
  MetGraphs graphs(1, [](graph::SignaturePtr s) { return s->name != "tier j"; });
  EXPECT_EQ(on_host(graphs, 3), std::vector<bool>({false, true}));
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
