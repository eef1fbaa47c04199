// Elements of a pending product, computed at the places of a sparse matrix alone.
//
// Note [Elements that are looked at]: PyTorch's formula for the gradient of a sparse matrix in a product with a
// strided one computes the strided product of two matrices, as large as the sparse one with all its zeros, and then
// keeps only the elements at the sparse one's places (sparse_mask). On this device such a product is still pending
// when it is masked. If it is a product, or is made of products elementwise, the same computation is recorded for
// these elements alone instead: torch_pjrt::sparse_sampled_mm. No tensor holds the large matrix then, and it is never
// computed; if a tensor does hold it, it is computed as on the CPU.
#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "device/aten_call/arguments.h"
#include "device/sparse/sparse.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

using graph::Value;

// A pending call, as it was recorded.
struct Waiting {
  graph::SignaturePtr signature;
  std::vector<Value> operands;
  std::vector<graph::ScalarValue> scalars;
};

std::optional<Waiting> waiting(const Value& value) {
  const std::lock_guard lock(graph::graph_lock());
  const graph::Node& node = *value.node;
  if (node.is_leaf() || !node.leaves.empty()) return std::nullopt;
  return Waiting{
      node.signature, {node.operands.begin(), node.operands.end()}, {node.scalars.begin(), node.scalars.end()}};
}

// Returns whether each element of the op's result depends on the operands' elements at that place alone.
bool is_pointwise(std::string_view name) {
  constexpr std::array kNames{"aten::add.Tensor", "aten::add_.Tensor", "aten::sub.Tensor", "aten::mul.Tensor",
                              "aten::mul.Scalar", "aten::div.Tensor",  "aten::div.Scalar", "aten::neg"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// Returns whether the view is its whole two-dimensional base, transposed.
bool is_transpose(const Waiting& call) {
  if (call.signature->name != "pjrt::view" || call.scalars[0].as_int() != 0) return false;
  const graph::TensorType& base = *call.signature->operands[0];
  if (base.rank() != 2 || !base.is_contiguous() || base.dtype != call.signature->results[0]->dtype) return false;
  return call.signature->parameters[1].constant.toIntVector() == std::vector{base.sizes[1], base.sizes[0]} &&
         call.signature->parameters[2].constant.toIntVector() == std::vector{int64_t{1}, base.sizes[1]};
}

at::Tensor tensor_of(Value value, c10::DeviceIndex device) {
  at::Tensor tensor = make_tensor(value.type(), device);
  const std::lock_guard lock(graph::graph_lock());
  storage_of(tensor)->slot.bind(graph::settle(value));
  return tensor;
}

Value value_of(const at::Tensor& tensor) {
  const std::lock_guard lock(graph::graph_lock());
  return read(tensor);
}

// Returns whether both compute the same value. Returns false if that takes long to decide.
bool are_same_values(const Value& a, const Value& b, int depth = 4) {
  if (a == b) return true;
  if (depth == 0 || a.index != b.index) return false;
  const std::optional<Waiting> one = waiting(a), other = waiting(b);
  if (!one || !other || one->signature != other->signature || one->signature->random) return false;
  return one->scalars == other->scalars &&
         std::equal(one->operands.begin(), one->operands.end(), other->operands.begin(), other->operands.end(),
                    [&](const Value& x, const Value& y) { return are_same_values(x, y, depth - 1); });
}

// The places in an (n, columns) matrix whose elements are needed.
class Places {
 public:
  Places(Parts parts, c10::Layout layout, int64_t columns)
      : parts_(std::move(parts)), layout_(layout), columns_(columns) {}

  // Returns the same places in the transposed matrix, which has this number of columns.
  Places transposed(int64_t columns) const {
    if (layout_ == c10::kSparse) return {{parts_.plain, parts_.compressed, {}}, layout_, columns};
    return {parts_, layout_ == c10::kSparseCsr ? c10::kSparseCsc : c10::kSparseCsr, columns};
  }

  at::Tensor sampled(const at::Tensor& a, const at::Tensor& b) const {
    return sparse_sampled_mm(parts_, a, b, layout_);
  }

  // Returns the elements of a strided matrix that is made of a sparse one.
  at::Tensor of_sparse(const Waiting& to_dense, c10::DeviceIndex device) const {
    const auto& given = to_dense.operands;
    const at::Tensor values = tensor_of(given[2], device);
    const c10::Layout layout = layout_of(to_dense.signature->parameters[3].constant.toStringRef());
    if (layout == layout_ && are_same_values(given[0], value_of(parts_.compressed)) &&
        are_same_values(given[1], value_of(parts_.plain))) {
      return values;
    }
    const Places all({tensor_of(given[0], device), tensor_of(given[1], device), {}}, layout, columns_);
    const at::Tensor places = flat(), sorted = std::get<0>(places.sort(0));
    if (places.numel() == 0) return values.narrow(0, 0, 0);
    const Found found = find_in(sorted, all.flat());
    const at::Tensor sums = summed_at(found.position, where_chosen(found.is_there, values), places.size(0));
    return sums.index_select(0, find_in(sorted, places).position);  // the elements of one place are at its first number
  }

  // Returns the elements of a tensor that is broadcast to the matrix.
  at::Tensor of(const at::Tensor& tensor) const {
    if (tensor.dim() == 0) return tensor;
    const auto [row, column] = rows_and_columns(parts_, layout_);
    const bool one_row = tensor.dim() == 1 || tensor.size(0) == 1, one_column = tensor.size(-1) == 1;
    if (one_row && one_column) return tensor.reshape({1}).expand({column.size(0)});
    if (one_row) return tensor.reshape({-1}).index_select(0, column);
    if (one_column) return tensor.reshape({-1}).index_select(0, row);
    return tensor.reshape({-1}).index_select(0, flat());
  }

  // Returns the places' flat numbers, row-major.
  at::Tensor flat() const {
    const auto [row, column] = rows_and_columns(parts_, layout_);
    return flat_places(row, column, columns_);
  }

 private:
  Parts parts_;
  c10::Layout layout_;
  int64_t columns_;
};

// Finds the elements of one matrix.
class Look {
 public:
  Look(Places places, c10::IntArrayRef sizes, c10::DeviceIndex device)
      : there_(places), transposed_(places.transposed(sizes[0])), device_(device) {}

  at::Tensor of(const Value& value, bool is_transposed = false) {
    at::Tensor& known = known_[{value.node.get(), value.index, is_transposed}];
    if (!known.defined()) known = found(value, is_transposed);
    return known;
  }

 private:
  at::Tensor found(const Value& value, bool is_transposed) {
    const Places& places = is_transposed ? transposed_ : there_;
    const std::optional<Waiting> call = value.type()->rank() == 2 ? waiting(value) : std::nullopt;
    if (!call) return places.of(tensor_of(value, device_));
    const std::string_view name = call->signature->name;
    if (name == "aten::mm") {
      return places.sampled(tensor_of(call->operands[0], device_), tensor_of(call->operands[1], device_));
    }
    if (name == "torch_pjrt::sparse_to_dense") return places.of_sparse(*call, device_);
    if (is_transpose(*call)) return of(call->operands[0], !is_transposed);
    if (is_pointwise(name)) return pointwise(*call, value, is_transposed);
    return places.of(tensor_of(value, device_));
  }

  at::Tensor pointwise(const Waiting& call, const Value& value, bool is_transposed) {
    torch::jit::Stack stack = make_stack(*call.signature, call.scalars, [&](uint32_t operand) {
      const Value& given = call.operands[operand];
      const bool is_whole = given.type()->sizes == value.type()->sizes;
      const Places& places = is_transposed ? transposed_ : there_;
      return is_whole ? of(given, is_transposed) : places.of(tensor_of(given, device_));
    });
    if (call.signature->name == "aten::add_.Tensor") {  // the tensor that it writes to is used elsewhere
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor").callBoxed(stack);
    } else {
      call.signature->op->callBoxed(stack);
    }
    return stack.back().toTensor().to(value.type()->dtype);
  }

  Places there_, transposed_;
  c10::DeviceIndex device_;
  std::map<std::tuple<const graph::Node*, uint32_t, bool>, at::Tensor> known_;
};

// Returns the blocks at these places: (blocks, height, width).
at::Tensor blocks_at(const at::Tensor& matrix, const Parts& parts, c10::Layout layout) {
  const int64_t height = parts.values.size(1), width = parts.values.size(2);
  const int64_t rows = matrix.size(0) / height, columns = matrix.size(1) / width;
  const auto [row, column] = rows_and_columns(parts, layout);
  const at::Tensor blocks = matrix.reshape({rows, height, columns, width}).transpose(1, 2);
  return blocks.reshape({rows * columns, height, width}).index_select(0, flat_places(row, column, columns));
}

}  // namespace

at::Tensor elements_at(const at::Tensor& matrix, const Parts& parts, c10::Layout layout) {
  if (layout == c10::kSparseBsr || layout == c10::kSparseBsc) return blocks_at(matrix, parts, layout);
  constexpr int64_t kFew = 4;  // one whole product is faster than products of this many elements
  const Places places(parts, layout, matrix.size(1));
  if (parts.plain.numel() > matrix.numel() / kFew) return places.of(matrix);
  return Look(places, matrix.sizes(), matrix.device().index()).of(value_of(matrix));
}

bool are_same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && are_same_values(value_of(a), value_of(b));
}

}  // namespace tpjrt::device
