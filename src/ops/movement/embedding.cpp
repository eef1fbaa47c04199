// Rows of a table: embedding, and embedding bags (sums, means and maxima of rows), with their backwards.
//
// Offsets say which rows a bag has, and are data. Rows are therefore gathered, and combined into their bags by a
// scatter. For indices out of range see movement.h.
#include "ops/movement/movement.h"

namespace tpjrt::ops {

namespace {

// aten::embedding: rows of weight.
Values embedding(Emit& e, const Call& c) {
  Value weight = c.tensor("weight"), indices = c.tensor("indices");
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  e.require(indices, 0, weight.dim(0), "index out of range in self: {}");
  return {e.reshape(e.take(weight, e.reshape(indices, {indices.type.elements()}), 0), result.dims)};
}

// aten::embedding_dense_backward: rows of padding_idx get no gradient; by frequency, a row's sum is divided by its
// count.
Values embedding_dense_backward(Emit& e, const Call& c) {
  Value grad = c.tensor("grad_output"), indices = c.tensor("indices");
  const Type result = e.type_of(c.result());
  const int64_t n = indices.type.elements(), rows = result.dims[0];
  const ElementType compute = Emit::compute_element(grad.element());
  Value zeros = e.zeros({compute, result.dims});
  if (n == 0 || result.elements() == 0) return {e.convert(zeros, result.element)};
  e.require(indices, 0, rows, "index out of range in self: {}");  // the forward's result may never have been read
  Value index = e.convert(e.reshape(indices, {n}), index_element({rows + 1}));
  const int64_t padding = c.integer("padding_idx");
  if (padding >= 0) {
    Value is_padding = e.compare(hlo::Comparison::kEq, index, e.constant(padding, index.type));
    index = e.select(is_padding, e.constant(rows, index.type), index);  // out of range, so the write is dropped
  }
  Value updates = e.convert(e.reshape(grad, {n, result.dims[1]}), compute);
  if (c.boolean("scale_grad_by_freq")) {
    Value counts = scatter_slices(e, e.zeros({compute, {rows}}), 0, index, e.ones({compute, {n}}), Combine::kAdd);
    Value count = e.maximum(e.take(counts, index, 0), e.ones({compute, {n}}));
    updates = e.div(updates, e.broadcast_in_dim(count, updates.dims(), {0}));
  }
  return {e.convert(scatter_slices(e, zeros, 0, index, updates, Combine::kAdd), result.element)};
}

enum class Mode : uint8_t { kSum, kMean, kMax };

Mode mode_of(const Call& c) { return static_cast<Mode>(c.integer("mode")); }

// Returns `index`, with those equal to padding_idx out of range.
Value without_padding(Emit& e, const Call& c, const Value& index, const Value& of, int64_t out_of_range) {
  const int64_t padding = c.integer("padding_idx");
  if (padding < 0) return index;
  Value is_padding = e.compare(hlo::Comparison::kEq, of, e.constant(padding, of.type));
  return e.select(is_padding, e.constant(out_of_range, index.type), index);
}

// Returns each index's bag: the number of offsets up to it, less one.
Value bags_of(Emit& e, const Value& offsets, int64_t indices) {
  const Type counts{ElementType::kS32, {indices}};
  Value starts =
      scatter_slices(e, e.zeros(counts), 0, offsets, e.ones({counts.element, offsets.dims()}), Combine::kAdd);
  return e.sub(e.cumulative(starts, 0, "add", 0), e.ones(counts));
}

// Returns x [n, width] times factor [n].
Value scaled_rows(Emit& e, const Value& x, const Value& factor) {
  return e.mul(x, e.broadcast_in_dim(e.to(factor, x.element()), x.dims(), {0}));
}
Value divided_rows(Emit& e, const Value& x, const Value& count) {
  Value divisor = e.maximum(count, e.ones(count.type));  // the sum of an empty bag is 0, and so is its mean
  return e.div(x, e.broadcast_in_dim(e.convert(divisor, x.element()), x.dims(), {0}));
}

// Requires what PyTorch's kernels check of indices and offsets; throws Mistake for wrong shapes and dtypes.
void check_bags(Emit& e, const Call& c) {
  const Value weight = c.tensor("weight"), indices = c.tensor("indices"), offsets = c.tensor("offsets");
  const auto weights = c.optional_tensor("per_sample_weights");
  if (indices.rank() < 1 || indices.rank() > 2) throw Mistake("the indices have neither one dimension nor two");
  if (offsets.rank() != 1) throw Mistake("the offsets don't have one dimension");
  if (weight.rank() != 2) throw Mistake("the weight doesn't have two dimensions");
  if (weights && weights->element() != weight.element()) throw Mistake("the samples' weights are of another dtype");
  const int64_t n = indices.type.elements(), bags = offsets.dim(0);
  if (n > 0) {
    e.require(indices, 0, weight.dim(0),
              "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {}", false);
  }
  if (bags == 0) return;
  e.require(e.slice_dim(offsets, 0, 0, 1), 0, 1,
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, "
            "got {}",
            false);
  e.require(e.slice_dim(offsets, 0, bags - 1, bags), 0, n + 1,
            "offsets[-1] can not be greater than input's length " + std::to_string(n) + " but got offsets[-1] of {}",
            false);
}

// aten::_embedding_bag: (bags, each index's bag, how many rows a bag has, for maxima the row that each came from).
Values embedding_bag(Emit& e, const Call& c) {
  check_bags(e, c);
  const Type result = e.type_of(c.result());
  const int64_t bags = result.dims[0], width = result.dims[1], n = c.tensor("indices").type.elements();
  Values results;
  for (size_t i = 0; i < 4; ++i) results.push_back(e.zeros(e.type_of(c.result(i))));
  if (n == 0 || result.elements() == 0 || c.tensor("offsets").type.elements() == 0) return results;
  Value weight = c.tensor("weight");
  Value index = e.convert(e.reshape(c.tensor("indices"), {n}), index_element({weight.dim(0)}));
  Value bag = bags_of(e, c.tensor("offsets"), n), counted = without_padding(e, c, bag, index, bags);
  const ElementType compute = Emit::compute_element(weight.element());
  Value rows = e.convert(e.take(weight, index, 0), compute);
  if (auto weights = c.optional_tensor("per_sample_weights")) rows = scaled_rows(e, rows, *weights);
  const Type counts{bag.element(), {bags}}, sums{compute, {bags, width}};
  Value size = scatter_slices(e, e.zeros(counts), 0, counted, e.ones(bag.type), Combine::kAdd);
  Value combined;
  if (mode_of(c) == Mode::kMax) {
    Value lowest = e.broadcast_to(e.lowest(compute), sums.dims);
    Value highest = scatter_slices(e, lowest, 0, counted, rows, Combine::kMaximum);
    Value filled = e.compare(hlo::Comparison::kGt, size, e.zeros(size.type));
    filled = e.broadcast_in_dim(filled, sums.dims, {0});
    combined = e.select(filled, highest, e.zeros(sums));
    // Finds the first of equal rows.
    const Type positions{bag.element(), rows.dims()};
    Value hit = e.compare(hlo::Comparison::kEq, rows, e.take(highest, bag, 0));
    Value position = e.select(hit, e.iota(positions, 0), e.constant(n - 1, positions));
    Value last = e.constant(n - 1, Type{bag.element(), sums.dims});
    Value first = scatter_slices(e, last, 0, counted, position, Combine::kMinimum);
    Value source = e.reshape(e.take(index, e.reshape(first, {bags * width}), 0), sums.dims);
    results[3] = e.convert(e.select(filled, source, e.zeros(source.type)), results[3].element());
  } else {
    combined = scatter_slices(e, e.zeros(sums), 0, counted, rows, Combine::kAdd);
    if (mode_of(c) == Mode::kMean) combined = divided_rows(e, combined, size);
  }
  results[0] = e.convert(combined, result.element);
  results[1] = e.convert(bag, results[1].element());
  results[2] = e.convert(e.pad_dim(size, 0, 0, results[2].dim(0) - bags), results[2].element());
  return results;
}

// Returns each index's bag from the forward's result. The CPU's forward returns none where it needs none; then it is
// computed here.
Value given_bags(Emit& e, const Call& c, int64_t indices) {
  Value bag = c.tensor("offset2bag");
  return bag.type.elements() == indices ? bag : bags_of(e, c.tensor("offsets"), indices);
}

// aten::_embedding_bag_backward, aten::_embedding_bag_dense_backward: the table's gradient.
Values embedding_bag_backward(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  Value grad = c.tensor("grad"), indices = c.tensor("indices");
  const int64_t rows = result.dims[0], bags = grad.dim(0), n = indices.type.elements();
  const ElementType compute = Emit::compute_element(grad.element());
  Value zeros = e.zeros({compute, result.dims});
  if (n == 0 || result.elements() == 0 || bags == 0) return {e.convert(zeros, result.element)};
  grad = e.convert(grad, compute);
  Value size = e.slice_dim(c.tensor("bag_size"), 0, 0, bags);
  if (mode_of(c) == Mode::kMax) {
    Value filled = e.compare(hlo::Comparison::kGt, size, e.zeros(size.type));
    grad = e.select(e.broadcast_in_dim(filled, grad.dims(), {0}), grad, e.zeros(grad.type));
    Value table = scatter_along(e, zeros, 0, c.tensor("maximum_indices"), grad, Combine::kAdd);
    return {e.convert(table, result.element)};
  }
  Value index = e.convert(e.reshape(indices, {n}), index_element({rows + 1}));
  Value bag = given_bags(e, c, n);
  if (mode_of(c) == Mode::kMean) grad = divided_rows(e, grad, size);
  Value updates = e.take(grad, bag, 0);
  if (auto weights = c.optional_tensor("per_sample_weights")) updates = scaled_rows(e, updates, *weights);
  Value in_a_bag = e.compare(hlo::Comparison::kLt, bag, e.constant(bags, bag.type));
  Value target = e.select(in_a_bag, without_padding(e, c, index, index, rows), e.constant(rows, index.type));
  if (c.boolean("scale_grad_by_freq")) {
    const Type counts{compute, {rows}};
    Value count = scatter_slices(e, e.zeros(counts), 0, target, e.ones({compute, {n}}), Combine::kAdd);
    updates = divided_rows(e, updates, e.take(count, index, 0));
  }
  return {e.convert(scatter_slices(e, zeros, 0, target, updates, Combine::kAdd), result.element)};
}

// aten::_embedding_bag_per_sample_weights_backward: for each index, the product of its row with its bag's gradient.
Values embedding_bag_weights_backward(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  const ElementType compute = Emit::compute_element(result.element);
  const int64_t n = result.elements();
  Value index = e.reshape(c.tensor("indices"), {n}), bag = given_bags(e, c, n);
  Value products = e.mul(e.convert(e.take(c.tensor("grad"), bag, 0), compute),
                         e.convert(e.take(c.tensor("weight"), index, 0), compute));
  Value sums = e.sum(products, {1});
  const int64_t padding = c.integer("padding_idx");
  if (padding >= 0) {
    Value kept = e.compare(hlo::Comparison::kNe, index, e.constant(padding, index.type));
    sums = e.select(kept, sums, e.zeros(sums.type));
  }
  return {e.convert(sums, result.element)};
}

}  // namespace

void add_embedding_rules(RuleTable& rules) {
  rules.add_composite("aten::embedding", embedding);
  rules.add_composite("aten::embedding_dense_backward", embedding_dense_backward);
  rules.add_composite("aten::_embedding_bag", embedding_bag);
  rules.add_composite("aten::_embedding_bag_forward_only", embedding_bag);
  rules.add_composite("aten::_embedding_bag_backward", embedding_bag_backward);
  rules.add_composite("aten::_embedding_bag_dense_backward", embedding_bag_backward);
  rules.add_composite("aten::_embedding_bag_per_sample_weights_backward", embedding_bag_weights_backward);
}

}  // namespace tpjrt::ops
