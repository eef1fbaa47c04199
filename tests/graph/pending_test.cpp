// Which pending graphs start although nobody reads them.
#include "graph/node.h"

#include <gtest/gtest.h>

#include <vector>

#include "recording.h"

namespace tpjrt::graph::test {
namespace {

Value chain(Value value, size_t length) {
  for (size_t i = 0; i < length; ++i) value = call("neg", {value});
  return value;
}

size_t started(uint64_t since, const Least& least) { return pending(since, least).size(); }

TEST(Pending, SinceEverEachComponentIsOne) {
  const Value x = leaf(f32({2}));
  const Tensor one(chain(x, 1)), other(chain(x, 3));
  const Tensor beside(call("add", {other.value(), x}));  // in the second component
  EXPECT_EQ(started(0, {}), 2);
  EXPECT_EQ(started(0, {.nodes = 2}), 1);
  EXPECT_EQ(started(0, {.nodes = 5}), 0) << "the second one has four";
}

TEST(Pending, WhatRestsOnAPlaceholderIsNot) {
  const Tensor traced(chain(placeholder(f32({2})), 2 * kLarge.nodes));
  EXPECT_FALSE(any_pending());
  EXPECT_EQ(started(0, {}), 0);
  EXPECT_EQ(started(0, kLarge), 0);
  EXPECT_EQ(started(1, {}), 0);
}

TEST(Pending, LargeOnesAreOldEnough) {
  const Value x = leaf(f32({2}));
  const Tensor small(chain(x, kLarge.nodes - 1));
  EXPECT_EQ(started(0, kLarge), 0);
  const Tensor large(chain(x, kLarge.nodes));
  const uint64_t first = newest_id() - kLarge.nodes + 1;
  ASSERT_EQ(started(0, kLarge), 1);
  EXPECT_EQ(pending(0, kLarge)[0].node, large.value().node);
  EXPECT_EQ(started(0, {.nodes = kLarge.nodes, .begun = first}), 1);
  EXPECT_EQ(started(0, {.nodes = kLarge.nodes, .begun = first - 1}), 0);
}

TEST(Pending, ARoundIsMeasuredTogether) {
  const Value x = leaf(f32({2}));
  const Tensor before(chain(x, 4));
  const uint64_t since = newest_id();
  EXPECT_EQ(started(since, {}), 0) << "nothing is new";
  const Tensor little(chain(x, 1)), more(chain(before.value(), 3));
  EXPECT_EQ(started(since, {.nodes = 4}), 0) << "only what is new counts";
  EXPECT_EQ(started(since, {.nodes = 3}), 2) << "one has enough: both are of the round";
  const auto nbytes = static_cast<size_t>(x.type()->nbytes());
  EXPECT_EQ(started(since, {.nodes = 100, .nbytes = nbytes}), 2) << "of the first one's leaf";
  EXPECT_EQ(started(since, {.nodes = 100, .nbytes = 2 * nbytes}), 0) << "the second one reads what is pending";
}

}  // namespace
}  // namespace tpjrt::graph::test
