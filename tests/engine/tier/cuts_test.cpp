// Which graphs run in parts, and that the parts are in a valid order.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

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

std::vector<size_t> sizes_of(const graph::PartOfNode& part) {
  std::vector<size_t> sizes(*std::max_element(part.begin(), part.end()) + 1);
  for (const uint32_t number : part) ++sizes[number];
  return sizes;
}

void expect_in_order(const graph::Walk& walk, const graph::PartOfNode& part) {
  for (const graph::Node* node : walk.nodes) {
    for (const Value& operand : node->operands) {
      if (operand.is_leaf()) continue;
      EXPECT_LE(part[operand.node->local], part[node->local]);
    }
  }
}

// Calls without a repeating run.
Tensor straight(size_t calls) {
  Value x = leaf(f32({2}));
  uint64_t state = 1;
  for (size_t i = 0; i < calls; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    x = call("op" + std::to_string(state >> 48), {x});
  }
  return Tensor(x);
}

TEST(Cuts, AFewCallsAreOneProgram) {
  const Tensor tensor = straight(40);
  EXPECT_TRUE(GraphProfiles().cut(walked(tensor), InterpretBy::kKernels).part.empty());
}

TEST(Cuts, ANetworkThatIsMetFirstIsOneProgram) {
  const Tensor tensor = straight(400);
  EXPECT_TRUE(GraphProfiles().cut(walked(tensor), InterpretBy::kKernels).part.empty());
}

TEST(Cuts, RoundsOfALoopAreSegmentsOfEqualCalls) {
  const Value matrix = leaf(f32({4, 4}));
  Value x = leaf(f32({4}));
  constexpr size_t kRounds = 200;
  for (size_t i = 0; i < kRounds; ++i) x = call("div", {call("mv", {matrix, x}, f32({4})), call("norm", {x})});
  const Tensor tensor(x);
  const graph::Walk walk = walked(tensor);
  const graph::PartOfNode part = GraphProfiles().cut(walk, InterpretBy::kKernels).part;
  ASSERT_FALSE(part.empty());
  expect_in_order(walk, part);
  const std::vector<size_t> sizes = sizes_of(part);
  ASSERT_GE(sizes.size(), 4U);
  std::vector<size_t> sorted = sizes;
  std::sort(sorted.begin(), sorted.end());
  const size_t usual = sorted[sorted.size() / 2];
  EXPECT_GE(std::count(sizes.begin(), sizes.end(), usual), static_cast<int64_t>(sizes.size()) - 2);
  EXPECT_EQ(usual % 3, 0U) << "whole iterations";
}

TEST(Cuts, LayersWithParametersOfTheirOwnAreNoRounds) {
  Value x = leaf(f32({4}));
  for (size_t i = 0; i < 60; ++i) x = call("relu", {call("mv", {leaf(f32({4, 4})), x}, f32({4}))});
  const Tensor tensor(x);
  EXPECT_TRUE(GraphProfiles().cut(walked(tensor), InterpretBy::kKernels).part.empty());
}

TEST(Cuts, NoProgramHasMoreThanFourThousandCalls) {
  const Tensor tensor = straight(9000);
  const graph::Walk walk = walked(tensor);
  const graph::PartOfNode part = GraphProfiles().cut(walk, InterpretBy::kKernels).part;
  ASSERT_FALSE(part.empty());
  expect_in_order(walk, part);
  for (const size_t size : sizes_of(part)) EXPECT_LE(size, 4000U);
}

}  // namespace
}  // namespace tpjrt::engine::test
