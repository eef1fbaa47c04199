// The rules of pjrt_world::all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, per_rank and promised_equal
// (schemas: device/collectives/collectives.cpp).
#include <algorithm>

#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

using Groups = hlo::Builder::Groups;

Groups groups_of(const Call& c) {
  const Dims ranks = c.ints("groups");
  const int64_t size = c.integer("group_size");
  // Where ranks are processes, the program has a replica for each rank that takes part, in ascending order.
  Dims all(ranks.begin(), ranks.end());
  std::sort(all.begin(), all.end());
  Groups groups;
  for (auto rank = ranks.begin(); rank != ranks.end(); rank += size) {
    Dims& group = groups.emplace_back();
    for (auto one = rank; one != rank + size; ++one) {
      group.push_back(std::lower_bound(all.begin(), all.end(), *one) - all.begin());
    }
  }
  return groups;
}

// Returns the StableHLO op that joins two ranks' values in this reduction of torch.distributed. Bools are the numbers
// 0 and 1 here, and whatever isn't 0 is 1. Throws Unsupported for other reductions.
std::string joined_by(const std::string& reduction, ElementType element) {
  if (element == ElementType::kPred) {
    if (reduction == "sum" || reduction == "max" || reduction == "bor") return "maximum";
    if (reduction == "product" || reduction == "min" || reduction == "band") return "minimum";
    if (reduction == "bxor") return "xor";
    throw Unsupported("'" + reduction + "' of bools; take sum, product, min, max, band, bor or bxor");
  }
  if (reduction == "sum") return "add";
  if (reduction == "avg" && !hlo::is_integer(element)) return "add";
  if (reduction == "avg") throw Unsupported("'avg' of integers; take the sum, or convert to a float dtype");
  if (reduction == "product") return "multiply";
  if ((reduction == "max" || reduction == "min") && !hlo::is_complex(element)) return reduction + "imum";
  if ((reduction == "band" || reduction == "bor" || reduction == "bxor") && hlo::is_integer(element)) {
    return reduction.substr(1);
  }
  throw Unsupported("'" + reduction + "' of " + hlo::to_string(Type{element, {}}) +
                    "; take sum, avg or product, and for real numbers min or max");
}

// Reduces by `reduce(op, x)`, in the dtype in which torch computes.
template <class Reduce>
Value reduced(Emit& e, const Call& c, const Value& x, const Reduce& reduce) {
  const std::string reduction = c.string("reduce_op"), op = joined_by(reduction, x.element());
  if (x.element() == ElementType::kPred) {
    return e.convert(reduce(op, e.convert(x, ElementType::kU8)), ElementType::kPred);
  }
  return e.upcast(x, [&](const Value& y) {
    Value all = reduce(op, y);
    if (reduction == "avg") all = e.div(all, e.splat(static_cast<double>(c.integer("group_size")), all.type));
    return all;
  });
}

// Plugins have no reductions of bits among devices, so the values are moved, and joined where they are needed.
bool is_of_bits(const std::string& op) { return op == "and" || op == "or" || op == "xor"; }

// Joins the group's values, which are concatenated along the first dimension of `values`.
Value join_bits(Emit& e, const std::string& op, const Value& values, const Groups& groups) {
  const auto count = static_cast<int64_t>(groups[0].size());
  Dims dims = values.dims();
  dims[0] /= count;
  dims.insert(dims.begin(), count);
  const Value initial = e.constant(op == "and" ? -1 : 0, {values.element(), {}});
  return e.reduce(op, e.reshape(values, dims), initial, {0});
}

// Moves elements of any type between devices: numbers as they are, others by their bits.
template <class Move>
Value by_bits(Emit& e, const Value& x, const Move& move) {
  const ElementType element = x.element();
  if (hlo::is_complex(element)) {
    const Value real = e.unary("real", x), imag = e.unary("imag", x);
    return e.complex(move(real), move(imag));
  }
  if (element == ElementType::kPred) return e.convert(move(e.convert(x, ElementType::kU8)), ElementType::kPred);
  const int64_t width = hlo::byte_width(element);
  const ElementType bits = width == 1   ? ElementType::kU8
                           : width == 2 ? ElementType::kU16
                           : width == 4 ? ElementType::kU32
                                        : ElementType::kU64;
  if (bits == element) return move(x);
  const Value moved = move(e.bitcast_convert(x, {bits, x.dims()}));
  return e.bitcast_convert(moved, {element, moved.dims()});
}

Values all_reduce(Emit& e, const Call& c) {
  const Value x = c.tensor("input");
  if (x.type.elements() == 0) return {x};
  const Groups groups = groups_of(c);
  return {reduced(e, c, x, [&](const std::string& op, const Value& y) {
    if (!is_of_bits(op)) return e.all_reduce(op, y, groups);
    return e.reshape(join_bits(e, op, e.all_gather(e.reshape(y, {y.type.elements()}), 0, groups), groups), y.dims());
  })};
}

Values all_gather(Emit& e, const Call& c) {
  const Value x = c.tensor("input");
  if (x.type.elements() == 0) return {e.zeros(e.type_of(c.result()))};
  const Groups groups = groups_of(c);
  return {by_bits(e, x, [&](const Value& bits) { return e.all_gather(bits, 0, groups); })};
}

Values reduce_scatter(Emit& e, const Call& c) {
  const Value x = c.tensor("input");
  if (x.type.elements() == 0) return {e.zeros(e.type_of(c.result()))};
  const Groups groups = groups_of(c);
  return {reduced(e, c, x, [&](const std::string& op, const Value& y) {
    if (!is_of_bits(op)) return e.reduce_scatter(op, y, 0, groups);
    return join_bits(e, op, e.all_to_all(y, 0, groups), groups);
  })};
}

Values all_to_all(Emit& e, const Call& c) {
  const Value x = c.tensor("input");
  if (x.type.elements() == 0) return {x};
  const Groups groups = groups_of(c);
  return {by_bits(e, x, [&](const Value& bits) { return e.all_to_all(bits, 0, groups); })};
}

// Returns this rank's entry in the table, which has one number for each rank.
Value of_this_rank(Emit& e, const std::vector<int64_t>& table) {
  const auto size = static_cast<int64_t>(table.size());
  const Value all = e.constant_dense(table, {ElementType::kS64, {size}});
  return e.reshape(e.dynamic_slice(all, {e.replica_id()}, {1}), {});
}

// Broadcasts as a sum of bits, which are zero except at the source: no plugin for CPUs or TPUs has StableHLO's op.
Values broadcast(Emit& e, const Call& c) {
  const Value x = c.tensor("input");
  if (x.type.elements() == 0) return {x};
  const Groups groups = groups_of(c);
  size_t ranks = 0;
  for (const Dims& group : groups) ranks += group.size();
  std::vector<int64_t> sources(ranks, 0);
  for (const Dims& group : groups) sources[static_cast<size_t>(group.at(static_cast<size_t>(c.integer("source"))))] = 1;
  const Value is_source = e.to(of_this_rank(e, sources), ElementType::kPred);
  return {by_bits(e, x, [&](const Value& bits) {
    const Value sent = e.select(is_source, bits, e.zeros(bits.type));
    return e.all_reduce("add", sent, groups);
  })};
}

Values promised_equal(Emit& /*e*/, const Call& c) { return {c.tensor("input")}; }

Values per_rank(Emit& e, const Call& c) { return {of_this_rank(e, c.ints("values"))}; }

}  // namespace

void add_collective_rules(RuleTable& rules) {
  rules.add("pjrt_world::all_reduce", all_reduce);
  rules.add("pjrt_world::all_gather", all_gather);
  rules.add("pjrt_world::reduce_scatter", reduce_scatter);
  rules.add("pjrt_world::all_to_all", all_to_all);
  rules.add("pjrt_world::broadcast", broadcast);
  rules.add("pjrt_world::per_rank", per_rank);
  rules.add("pjrt_world::promised_equal", promised_equal);
}

}  // namespace tpjrt::ops
