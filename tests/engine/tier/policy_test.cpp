// Which runs of a graph are by calls.
#include <gtest/gtest.h>

#include <string>
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

bool takes_calls(MetGraphs& graphs, const Tensor& tensor, CallsBy by) {
  const graph::Walk walk = walked(tensor);
  return graphs.takes_calls(walk, *graphs.meet(walk, by), by);
}

TEST(Tiers, AGraphPaysForItsCompile) {
  MetGraphs graphs;
  const Tensor tensor = chain({"tier a", "tier b"}, {1 << 20});
  const Cost cost = predicted_cost(walked(tensor), CallsBy::kKernels);
  int64_t runs = 0;
  while (takes_calls(graphs, tensor, CallsBy::kKernels)) ++runs;
  EXPECT_GT(runs, 1);
  EXPECT_LT(runs * cost.calls, cost.compile);
  EXPECT_GE((runs + 1) * cost.calls, cost.compile);
  EXPECT_FALSE(takes_calls(graphs, tensor, CallsBy::kKernels)) << "once paid, always";
}

TEST(Tiers, AnotherGraphPaysForItself) {
  MetGraphs graphs;
  const Tensor tensor = chain({"tier a", "tier b"}, {1 << 20});
  while (takes_calls(graphs, tensor, CallsBy::kKernels)) continue;
  EXPECT_TRUE(takes_calls(graphs, chain({"tier b", "tier a"}, {1 << 20}), CallsBy::kKernels));
}

TEST(Tiers, WhereCallsAreProgramsANewGraphIsCompiledWhole) {
  MetGraphs graphs;
  EXPECT_FALSE(takes_calls(graphs, chain({"tier c", "tier d", "tier e"}), CallsBy::kPrograms));
}

TEST(Tiers, KnownCallsInNewOrdersAreNotCompiledWholeForEver) {
  MetGraphs graphs;
  const std::vector<std::vector<std::string>> orders{{"tier f", "tier g", "tier h"}, {"tier g", "tier h", "tier f"},
                                                     {"tier h", "tier f", "tier g"}, {"tier h", "tier g", "tier f"},
                                                     {"tier f", "tier h", "tier g"}, {"tier g", "tier f", "tier h"}};
  std::vector<bool> by_calls;
  for (const auto& order : orders) by_calls.push_back(takes_calls(graphs, chain(order), CallsBy::kPrograms));
  EXPECT_FALSE(by_calls.front());
  EXPECT_TRUE(by_calls[3]);
  EXPECT_TRUE(by_calls.back());
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
