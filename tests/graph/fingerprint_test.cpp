// The contents of walks and fingerprints, and the walks of parts.
#include <gtest/gtest.h>

#include "graph/errors.h"
#include "graph/fingerprint/parts.h"
#include "recording.h"

namespace tpjrt::graph::test {
namespace {

TEST(Walk, EqualGraphsHaveEqualFingerprints) {
  const auto graph = [](const char* last, bool shares) {
    const Value x = leaf(f32({2})), y = shares ? x : leaf(f32({2}));
    const Value sum = call("add", {x, y});
    return Tensor(call(last, {sum, x}));
  };
  const Tensor one = graph("mul", false), same = graph("mul", false);
  EXPECT_EQ(walked(one).fingerprint, walked(same).fingerprint);
  EXPECT_EQ(walked(one).hash, walked(same).hash);
  EXPECT_NE(walked(one).fingerprint, walked(graph("sub", false)).fingerprint);
  EXPECT_NE(walked(one).fingerprint, walked(graph("mul", true)).fingerprint)
      << "which leaves are one is part of the graph";
}

TEST(Walk, OrderOfOperandsIsInTheTape) {
  const Value x = leaf(f32({2})), y = leaf(f32({2}));
  const Value a = call("neg", {x}), b = call("exp", {y});
  const Tensor one(call("sub", {a, b}));
  const Value c = call("neg", {x}), d = call("exp", {y});
  const Tensor other(call("sub", {d, c}));
  EXPECT_NE(walked(one).fingerprint, walked(other).fingerprint);
}

TEST(Walk, NumbersAreBesideTheTape) {
  const Value x = leaf(f32({2}));
  const auto graph = [&](int64_t first, int64_t second) {
    const Value scaled = call("scale", {x}, f32({2}), {ScalarValue::of(first)});
    return Tensor(call("scale", {scaled}, f32({2}), {ScalarValue::of(second)}));
  };
  const Tensor one = graph(1, 2), other = graph(3, 4);
  EXPECT_EQ(walked(one).fingerprint, walked(other).fingerprint);
  const std::vector<ScalarValue> expected{ScalarValue::of(int64_t{3}), ScalarValue::of(int64_t{4})};
  EXPECT_EQ(walked(other).scalars, expected);
}

TEST(Walk, TakesTheComponentAndNoMore) {
  const Value x = leaf(f32({2}));
  const Value shared = call("neg", {x});
  const Tensor read(call("exp", {shared})), beside(call("sin", {shared}));
  const Tensor apart(call("cos", {x}));  // reads the same leaf, which joins no components
  const Walk walk = walked(read);
  EXPECT_EQ(walk.nodes.size(), 3U);
  EXPECT_EQ(walk.leaves.size(), 1U);
  const std::vector<Value> expected{read.value(), beside.value()};
  EXPECT_EQ(walk.results, expected) << "what cells hold, in recording order";
}

TEST(Walk, AnUpdateMayBeWrittenOverWhatItReplaces) {
  Tensor state(leaf(f32({4})));
  state.bind(call("add_", {state.value(), leaf(f32({4}))}));
  const Walk walk = walked(state);
  ASSERT_EQ(walk.aliases.size(), 1U);
  EXPECT_EQ(walk.leaves[walk.aliases[0].leaf].get(), state.slot()->previous_leaf());
  EXPECT_EQ(walk.aliases[0].result, 0U);

  Tensor grown(leaf(f32({4})));
  grown.bind(call("cat", {grown.value(), leaf(f32({4}))}, f32({8})));
  EXPECT_TRUE(walked(grown).aliases.empty()) << "a larger result doesn't fit";
}

TEST(Walk, ReadsATapeBack) {
  const Value x = leaf(f32({2})), y = leaf(f32({2, 1}));
  const Value wide = call("expand", {y}, f32({2}));
  Tensor result(call("add", {x, wide}));
  const DecodedGraph graph = decode_fingerprint(walked(result).fingerprint);
  ASSERT_EQ(graph.calls.size(), 2U);
  EXPECT_EQ(graph.calls[0].signature->name, "expand");
  EXPECT_EQ(graph.calls[1].signature->name, "add");
  ASSERT_EQ(graph.calls[1].operands.size(), 2U);
  EXPECT_TRUE(graph.calls[1].operands[0].leaf);
  EXPECT_FALSE(graph.calls[1].operands[1].leaf);
  EXPECT_EQ(graph.calls[1].operands[1].number, 0U);
  EXPECT_EQ(graph.leaves.at(graph.calls[1].operands[0].number), f32({2}));
  ASSERT_EQ(graph.results.size(), 1U);
  EXPECT_EQ(graph.results[0].number, 1U);
}

TEST(Walk, APlaceholderHasNoValue) {
  const Tensor traced(call("neg", {placeholder(f32({2}))}));
  EXPECT_THROW(walked(traced), DependsOnData);
  Walk walk;
  walk_trace({traced.value()}, {}, {}, walk);
  EXPECT_EQ(walk.leaves.size(), 1U) << "of a trace it is an argument like others";
}

TEST(Walk, SmallStateGoesInPacks) {
  const auto states = [](size_t count) {
    std::vector<Value> results;
    std::vector<Update> updates;
    std::vector<Value> leaves;
    for (uint32_t i = 0; i < count; ++i) {
      leaves.push_back(placeholder(f32({8})));
      results.push_back(call("neg", {leaves.back()}));
      updates.push_back({leaves.back().node.get(), i, /*may_be_flattened=*/true});
    }
    Walk walk;
    walk_trace(results, updates, {}, walk);
    return walk;
  };
  const Walk few = states(4), many = states(40);
  EXPECT_TRUE(few.states.empty());
  EXPECT_EQ(few.aliases.size(), 4U);
  EXPECT_TRUE(many.aliases.empty());
  size_t pieces = 0;
  for (const FlattenedState& state : many.states) {
    EXPECT_LE(state.elements * 4, 512);
    pieces += state.members.size();
  }
  EXPECT_EQ(pieces, 40U);
  EXPECT_EQ(count_of_own(argument_places(many)), 0);
}

TEST(Parts, ALaterPartReadsWhatAnEarlierOneGave) {
  const Value x = leaf(f32({2}));
  const Value first = call("neg", {x}), second = call("exp", {first});
  const Tensor result(call("add", {second, first}));
  const Walk whole = walked(result);
  const std::vector<const Node*> order = in_recording_order(whole);
  ASSERT_EQ(order.size(), 3U);
  PartOfNode part(3, 1);
  part[first.node->local] = 0;
  Parts parts(whole, part);
  ASSERT_EQ(parts.count(), 2U);

  Walk early;
  parts.walk(0, early);
  EXPECT_EQ(early.nodes, std::vector<Node*>{first.node.get()});
  EXPECT_EQ(early.results, std::vector<Value>{first});
  first.node->leaves.push_back(leaf(f32({2})).node);  // it has run

  Walk late;
  parts.walk(1, late);
  EXPECT_EQ(late.nodes.size(), 2U);
  ASSERT_EQ(late.leaves.size(), 1U);
  EXPECT_EQ(late.leaves[0].get(), first.node->leaves[0].get());
  EXPECT_EQ(late.results, std::vector<Value>{result.value()});
}

}  // namespace
}  // namespace tpjrt::graph::test
