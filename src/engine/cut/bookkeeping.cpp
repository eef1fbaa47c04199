// Which calls are bookkeeping.
#include "engine/cut/bookkeeping.h"

#include <algorithm>

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Parameter;
using graph::Signature;
using graph::TypePtr;

constexpr size_t kMostCalls = 128;
constexpr int64_t kMostElements = 1024;

bool is_small_integer(TypePtr type) {
  return type && c10::isIntegralType(type->dtype, /*includeBool=*/true) && type->numel() <= kMostElements;
}

}  // namespace

bool is_of_memory(const Signature& s) {
  return s.name == "pjrt::empty" || s.name == "pjrt::convert" || s.name == "pjrt::view" || s.name == "pjrt::write";
}

bool is_bookkeeping(const Node& node) {
  const Signature& s = *node.signature;
  if (s.random || s.results.empty()) return false;
  if (!std::all_of(s.operands.begin(), s.operands.end(), is_small_integer)) return false;
  if (!std::all_of(s.results.begin(), s.results.end(), is_small_integer)) return false;
  if (!s.op) return is_of_memory(s);
  return s.name.starts_with("aten::") &&
         std::none_of(s.parameters.begin(), s.parameters.end(),
                      [](const Parameter& parameter) { return parameter.constant.isDevice(); });
}

bool is_bookkeeping(const graph::Walk& walk) {
  return walk.nodes.size() <= kMostCalls &&
         std::all_of(walk.nodes.begin(), walk.nodes.end(), [](const Node* node) { return is_bookkeeping(*node); });
}

}  // namespace tpjrt::engine
