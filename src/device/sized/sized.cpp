// nonzero, masks, unique, bincount, repeat_interleave: the value that each reads, and the calls recorded for that
// size.
#include "device/sized/sized.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index.h>
#include <ATen/ops/nonzero_static.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "device/services/modes.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

using Stack = torch::jit::Stack;
using Results = std::vector<c10::IValue>;
// Maps the call's arguments to its results, or to none if the host must run it.
using Sized = Results (*)(c10::ArrayRef<c10::IValue> arguments);

int64_t read_integer(const at::Tensor& x) { return x.item().toLong(); }
int64_t count_of(const at::Tensor& mask) { return read_integer(at::count_nonzero(mask)); }
// Returns the first `size` true positions in a flat mask, and `fill` beyond the last one.
at::Tensor positions(const at::Tensor& mask, int64_t size, int64_t fill = 0) {
  return at::nonzero_static(mask, size, fill).squeeze(1);
}
at::Tensor beginning(const at::Tensor& x, int64_t dim, int64_t size) { return x.narrow(dim, 0, size); }

// Returns the first `count` of (n, columns), transposed in memory without gaps. `count` is a Scalar of the recorded
// calls.
at::Tensor transposed_beginning(const at::Tensor& rows, int64_t count) {
  const int64_t n = rows.size(0), columns = rows.size(1);
  if (count == n || count <= 1) return rows.t().contiguous().as_strided({count, columns}, {1, count});
  const at::Tensor place = at::arange(n * columns, rows.options());
  const at::Tensor row = place.remainder(count), column = place.floor_divide(count).clamp_max(columns - 1);
  return rows.reshape(-1).index_select(0, row.mul(columns).add(column)).as_strided({count, columns}, {1, count});
}

// aten::nonzero(Tensor self): transposed in memory, like the CPU's.
Results nonzero(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor self = arguments[0].toTensor();
  const auto integers = self.options().dtype(c10::kLong);
  if (self.numel() == 0) return {at::empty({self.dim(), 0}, integers).t()};
  const int64_t count = count_of(self);
  if (self.dim() == 0) return {at::empty({count, 0}, integers)};
  const at::Tensor all = at::nonzero_static(self, rounded_size(count, self.numel()), 0);
  return {transposed_beginning(all, count)};
}

// aten::masked_select(Tensor self, Tensor mask)
Results masked_select(c10::ArrayRef<c10::IValue> arguments) {
  if (arguments[1].toTensor().scalar_type() != c10::kBool) return {};
  const std::vector<at::Tensor> both = at::broadcast_tensors({arguments[0].toTensor(), arguments[1].toTensor()});
  if (both[0].numel() == 0) return {at::empty({0}, both[0].options())};
  const at::Tensor mask = both[1].reshape(-1);
  const int64_t count = count_of(mask);
  const at::Tensor places = positions(mask, rounded_size(count, mask.numel()));
  return {beginning(both[0].reshape(-1).index_select(0, places), 0, count)};
}

// Returns whether the mask fits the dimensions from `dim` on.
bool fits(const at::Tensor& mask, const at::Tensor& self, int64_t dim) {
  return mask.dim() > 0 && mask.numel() > 0 && dim + mask.dim() <= self.dim() &&
         mask.sizes() == self.sizes().slice(static_cast<size_t>(dim), static_cast<size_t>(mask.dim()));
}

// aten::index.Tensor(Tensor self, Tensor?[] indices): a mask becomes the positions where it is true. Beside other
// indices, with which they are broadcast, their exact number is used.
Results index(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor self = arguments[0].toTensor();
  c10::List<std::optional<at::Tensor>> indices;
  int64_t given = 0, masks = 0, dim = 0, mask_at = 0, count = 0;
  for (const c10::IValue& value : arguments[1].toListRef()) given += !value.isNone() && value.toTensor().defined();
  for (const c10::IValue& value : arguments[1].toListRef()) {
    if (value.isNone() || !value.toTensor().defined()) {
      indices.push_back(std::nullopt);
      ++dim;
      continue;
    }
    const at::Tensor one = value.toTensor();
    if (one.scalar_type() != c10::kBool) {
      if (one.scalar_type() == c10::kByte) return {};
      indices.push_back(one);
      ++dim;
      continue;
    }
    if (!fits(one, self, dim)) return {};
    ++masks;
    count = count_of(one);
    mask_at = dim;
    const int64_t size = given == 1 ? rounded_size(count, one.numel()) : count;
    const at::Tensor places = at::nonzero_static(one, size, 0).to(self.device());
    for (int64_t d = 0; d < one.dim(); ++d, ++dim) indices.push_back(places.select(1, d));
  }
  if (masks == 0) return {};  // another mistake, which the host reports
  const at::Tensor all = at::index(self, indices);
  return {given == 1 ? beginning(all, mask_at, count) : all};
}

// aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0)
Results bincount(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor self = arguments[0].toTensor();
  const int64_t least = arguments[2].toInt();
  const bool integral = c10::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  if (self.dim() != 1 || self.numel() == 0 || !integral || least < 0) return {};
  at::Tensor weights;
  if (!arguments[1].isNone()) weights = arguments[1].toTensor();
  if (weights.defined() && (weights.sizes() != self.sizes() || !is_pjrt(weights))) return {};
  const at::Tensor places = self.to(c10::kLong);
  const auto [low, high] = at::aminmax(places);
  const at::Tensor ends = at::stack({low, high}).cpu();
  if (ends[0].item<int64_t>() < 0) return {};
  const int64_t size = std::max(ends[1].item<int64_t>() + 1, least);
  if (!weights.defined()) {
    weights = at::ones(self.sizes(), places.options());
  } else if (weights.scalar_type() != c10::kFloat) {
    weights = weights.to(c10::kDouble);
  }
  const at::Tensor bins = at::zeros({rounded_size(size, INT64_MAX)}, weights.options());
  return {beginning(bins.index_add(0, places, weights), 0, size)};
}

// aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None)
Results repeat_interleave(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor repeats = arguments[0].toTensor();
  if (repeats.dim() != 1 || repeats.numel() == 0 || !arguments[1].isNone()) return {};
  if (repeats.scalar_type() != c10::kLong && repeats.scalar_type() != c10::kInt) return {};
  const at::Tensor ends = repeats.cumsum(0);
  const at::Tensor read = at::stack({repeats.min().to(c10::kLong), ends.select(0, -1)}).cpu();
  if (read[0].item<int64_t>() < 0) return {};
  const int64_t count = read[1].item<int64_t>();
  const at::Tensor places = at::arange(rounded_size(count, INT64_MAX), ends.options());
  const at::Tensor found = at::searchsorted(ends, places, /*out_int32=*/false, /*right=*/true);
  return {beginning(found, 0, count).to(repeats.scalar_type())};
}

bool may_be_unique(const at::Tensor& self) { return self.numel() > 0 && !c10::isComplexType(self.scalar_type()); }

at::Tensor no_integers(const at::Tensor& like) { return at::empty({0}, like.options().dtype(c10::kLong)); }

// Returns the unique elements of all, sorted. Each NaN counts separately.
Results unique_sorted(const at::Tensor& self, bool inverse, bool counts) {
  const auto [values, order] = self.reshape(-1).sort(/*stable=*/true, 0, false);
  const Runs found = runs(starts_of(values));
  const at::Tensor each = inverse ? at::empty_like(found.inverse).scatter(0, order, found.inverse).reshape(self.sizes())
                                  : no_integers(self);
  return {beginning(values.index_select(0, found.places), 0, found.count), each,
          counts ? found.counts : no_integers(self)};
}

// aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False)
Results unique2(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor self = arguments[0].toTensor();
  if (!may_be_unique(self)) return {};
  return unique_sorted(self, arguments[2].toBool(), arguments[3].toBool());
}

// aten::_unique(Tensor self, bool sorted=True, bool return_inverse=False)
Results unique(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor self = arguments[0].toTensor();
  if (!may_be_unique(self)) return {};
  Results results = unique_sorted(self, arguments[2].toBool(), false);
  results.pop_back();
  return results;
}

// Returns the first `count` picked along a dimension, which is the outermost in memory, like the CPU's.
at::Tensor picked(const at::Tensor& self, int64_t dim, const at::Tensor& places, int64_t count) {
  return beginning(self.movedim(dim, 0).index_select(0, places), 0, count).movedim(0, dim);
}

// aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None)
Results unique_consecutive(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor self = arguments[0].toTensor();
  const bool whole = arguments[3].isNone();
  if (!may_be_unique(self) || (self.dim() == 0 && !whole)) return {};
  const int64_t dim = whole ? 0 : c10::maybe_wrap_dim(arguments[3].toInt(), self.dim());
  const at::Tensor along = whole ? self.reshape(-1) : self;
  const Runs found = runs(starts_of(along.movedim(dim, 0)));
  const at::Tensor inverse = whole ? found.inverse.reshape(self.sizes()) : found.inverse;
  return {picked(along, dim, found.places, found.count), arguments[1].toBool() ? inverse : no_integers(self),
          arguments[2].toBool() ? found.counts : no_integers(self)};
}

// aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False):
// sorted by the first column, then by the second.
Results unique_dim(c10::ArrayRef<c10::IValue> arguments) {
  constexpr int64_t kMostColumns = 64;
  const at::Tensor self = arguments[0].toTensor();
  if (!may_be_unique(self) || self.dim() == 0) return {};
  const int64_t dim = c10::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  const at::Tensor rows = self.movedim(dim, 0).reshape({self.size(dim), -1});
  if (rows.size(1) > kMostColumns) return {};
  at::Tensor order = at::arange(rows.size(0), rows.options().dtype(c10::kLong));
  for (int64_t column = rows.size(1) - 1; column >= 0; --column) {
    const at::Tensor keys = rows.select(1, column).index_select(0, order);
    order = order.index_select(0, std::get<1>(keys.sort(/*stable=*/true, 0, false)));
  }
  const Runs found = runs(starts_of(rows.index_select(0, order)));
  const at::Tensor places = order.index_select(0, found.places);
  const at::Tensor inverse = at::empty_like(found.inverse).scatter(0, order, found.inverse);
  return {picked(self, dim, places, found.count), arguments[3].toBool() ? inverse : no_integers(self),
          arguments[4].toBool() ? found.counts : no_integers(self)};
}

const std::unordered_map<std::string_view, Sized>& all() {
  static const std::unordered_map<std::string_view, Sized> ops = {
      {"aten::nonzero", nonzero},
      {"aten::masked_select", masked_select},
      {"aten::index.Tensor", index},
      {"aten::bincount", bincount},
      {"aten::repeat_interleave.Tensor", repeat_interleave},
      {"aten::_unique", unique},
      {"aten::_unique2", unique2},
      {"aten::unique_consecutive", unique_consecutive},
      {"aten::unique_dim", unique_dim},
  };
  return ops;
}

}  // namespace

Runs runs(const at::Tensor& starts) {
  Runs all;
  const int64_t n = starts.numel();
  all.count = count_of(starts);
  const int64_t size = rounded_size(all.count, n);
  const at::Tensor ends = positions(starts, size + 1, n);  // where the next run begins
  all.places = ends.narrow(0, 0, size).clamp_max(n - 1);
  all.inverse = starts.to(c10::kLong).cumsum(0).sub(1);
  all.counts = beginning(ends.narrow(0, 1, size).sub(ends.narrow(0, 0, size)), 0, all.count);
  return all;
}

// Compares each of (n, …) with the one before it.
at::Tensor starts_of(const at::Tensor& x) {
  const at::Tensor rows = x.reshape({x.size(0), -1});
  const at::Tensor other = rows.narrow(0, 1, x.size(0) - 1).ne(rows.narrow(0, 0, x.size(0) - 1)).any(1);
  return at::constant_pad_nd(other, {1, 0}, true);
}

int64_t rounded_size(int64_t size, int64_t most) {
  int64_t step = 1;
  while (step * 2 <= size) step *= 2;
  const int64_t up = size <= step ? size : size <= step + step / 2 ? step + step / 2 : 2 * step;
  return std::min(up, most);
}

// A traced tensor has no value to look at. The host path reports that, and names the call.
bool rests_on_placeholder(const at::Tensor& tensor) {
  if (!is_pjrt(tensor)) return false;
  const std::lock_guard lock(graph::graph_lock());
  const graph::Value& value = storage_of(tensor)->slot.value();
  if (!value) return false;
  if (value.is_leaf()) return !value.node->data;
  return value.node->component && graph::Component::root(value.node->component.get())->traced;
}

bool run_sized(const Operator& op, torch::jit::Stack& stack) {
  const auto found = all().find(op.name);
  if (found == all().end() || tracing() || stays_lazy()) return false;
  const size_t first = stack.size() - op.arguments.size();
  const c10::ArrayRef<c10::IValue> arguments(stack.data() + first, op.arguments.size());
  if (!arguments[0].isTensor() || !is_pjrt(arguments[0].toTensor())) return false;
  if (rests_on_placeholder(arguments[0].toTensor())) return false;
  Results results = found->second(arguments);
  if (results.empty()) return false;
  stack.resize(first);
  for (c10::IValue& result : results) stack.push_back(std::move(result));
  return true;
}

}  // namespace tpjrt::device
