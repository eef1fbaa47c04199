// Which writes may read the memory that they overwrite.
#include "engine/lower/module/emit_program.h"

#include <gtest/gtest.h>

#include "../../graph/recording.h"

namespace tpjrt::engine::test {
namespace {

using graph::Parameter;
using graph::ScalarValue;
using graph::TypePtr;
using graph::Value;
using graph::test::call;
using graph::test::f32;
using graph::test::leaf;

Parameter ints(const char* name, std::vector<int64_t> values) {
  Parameter parameter;
  parameter.name = name;
  parameter.constant = c10::IValue(std::move(values));
  return parameter;
}

Parameter other(const char* name, Parameter::Kind kind) {
  Parameter parameter;
  parameter.name = name;
  parameter.kind = kind;
  return parameter;
}

// Views `size` elements starting at `offset`, like device/tensor/access.cpp.
Value view(const Value& base, int64_t size, int64_t offset) {
  return call("pjrt::view", {base}, f32({size}), {ScalarValue::of(offset)},
              {other("base", Parameter::Kind::kTensor), ints("sizes", {size}), ints("strides", {1}),
               other("offset", Parameter::Kind::kScalar)});
}

Value write(const Value& base, const Value& update, int64_t offset) {
  return call(
      "pjrt::write", {base, update}, base.type(), {ScalarValue::of(offset)},
      {other("base", Parameter::Kind::kTensor), other("update", Parameter::Kind::kTensor),
       ints("sizes", {update.type()->sizes[0]}), ints("strides", {1}), other("offset", Parameter::Kind::kScalar)});
}

// Returns whether the write that computes `value` may read what it overwrites.
bool overwrites(const Value& value, bool offsets_are_arguments = false) {
  graph::StorageSlot slot;
  slot.bind(value);
  graph::Walk walk;
  graph::StorageSlot* one = &slot;
  graph::walk(one, walk);
  std::vector<ScalarSlot> slots;
  for (const ScalarValue& number : walk.scalars) slots.push_back({number, offsets_are_arguments});
  return overwrites_of(walk, slots).at(value.node->local) == ops::Overwrites::kReadAnywhere;
}

TEST(Overwrites, AShiftedReadDepends) {
  const Value x = leaf(f32({8}));
  EXPECT_TRUE(overwrites(write(x, call("aten::neg", {view(x, 7, 0)}), 1)));
}

TEST(Overwrites, TheSameElementsDoNot) {
  const Value x = leaf(f32({8}));
  EXPECT_FALSE(overwrites(write(x, call("aten::neg", {view(x, 4, 2)}), 2)));
}

TEST(Overwrites, RowsApartDoNot) {
  const Value x = leaf(f32({8}));
  EXPECT_FALSE(overwrites(write(x, call("aten::neg", {view(x, 4, 0)}), 4)));
}

TEST(Overwrites, OtherMemoryDoesNot) {
  const Value x = leaf(f32({8})), y = leaf(f32({4}));
  EXPECT_FALSE(overwrites(write(x, call("aten::neg", {y}), 2)));
}

TEST(Overwrites, MoreThanElementByElementDepends) {
  const Value x = leaf(f32({8}));
  EXPECT_TRUE(overwrites(write(x, call("aten::sort", {view(x, 4, 2)}), 2)));
}

TEST(Overwrites, AnOffsetThatVariesDepends) {
  const Value x = leaf(f32({8}));
  EXPECT_TRUE(overwrites(write(x, call("aten::neg", {view(x, 4, 2)}), 2), /*offsets_are_arguments=*/true));
}

}  // namespace
}  // namespace tpjrt::engine::test
