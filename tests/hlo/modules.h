// One small module for each op of the builder, for the tests that read the text and for those that compile it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hlo/builder.h"

namespace tpjrt::hlo::test {

struct Module {
  std::string op;
  std::function<Values(Builder&)> build;

  std::string text() const {
    Builder b(op);
    Values results = build(b);
    return b.finish(results);
  }
};

// Contains every op at least once.
const std::vector<Module>& modules();

inline Type f32(Dims dims) { return {ElementType::kF32, std::move(dims)}; }
inline Type s32(Dims dims) { return {ElementType::kS32, std::move(dims)}; }
inline Type s64(Dims dims) { return {ElementType::kS64, std::move(dims)}; }
inline Type pred(Dims dims) { return {ElementType::kPred, std::move(dims)}; }

}  // namespace tpjrt::hlo::test
