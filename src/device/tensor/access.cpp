// View and write nodes: how a tensor that differs from its storage's form reads and changes the storage's value.
#include "device/tensor/access.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "device/tensor/storage.h"
#include "graph/signature.h"
#include "graph/type.h"

namespace tpjrt::device {

namespace {

using graph::Parameter;
using graph::ScalarValue;
using graph::Signature;
using graph::SignaturePtr;
using graph::TypePtr;
using graph::Value;

thread_local WriteWatcher* watcher = nullptr;

// Strides of dimensions of size 1 (and of empty tensors) don't affect the layout.
bool same_place(const graph::TensorType& form, const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  if (form.dtype != tensor.scalar_type() || tensor.storage_offset() != 0 || sizes != c10::IntArrayRef(form.sizes)) {
    return false;
  }
  const auto strides = tensor.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] != form.strides[i] && sizes[i] != 1) return tensor.numel() == 0;
  }
  return true;
}

Parameter operand(std::string name, uint32_t index, TypePtr type) {
  Parameter p;
  p.name = std::move(name);
  p.kind = Parameter::Kind::kTensor;
  p.entries.push_back({Parameter::Entry::Source::kOperand, index, type, false});
  return p;
}
Parameter attribute(std::string name, c10::IntArrayRef values) {
  Parameter p;
  p.name = std::move(name);
  p.constant = c10::IValue(values.vec());
  return p;
}
Parameter flag(std::string name) {
  Parameter p;
  p.name = std::move(name);
  p.constant = c10::IValue(true);
  return p;
}
Parameter number(std::string name, uint32_t index) {
  Parameter p;
  p.name = std::move(name);
  p.kind = Parameter::Kind::kScalar;
  p.first = index;
  p.count = 1;
  return p;
}

enum class Form : uint8_t { kEmpty, kView, kWrite, kWriteBox, kConvert };

// Returns the interned signature of one of this project's own nodes. Under graph_lock().
SignaturePtr interned(Form form, TypePtr base, TypePtr other, c10::DeviceIndex device) {
  using Key = std::tuple<Form, TypePtr, TypePtr, c10::DeviceIndex>;
  struct Hash {
    size_t operator()(const Key& key) const {
      size_t h = reinterpret_cast<size_t>(std::get<1>(key)) * 0x9E3779B97F4A7C15ULL;
      h = (h ^ (h >> 29) ^ reinterpret_cast<size_t>(std::get<2>(key))) * 0xBF58476D1CE4E5B9ULL;
      return h ^ (h >> 32) ^ (static_cast<size_t>(std::get<0>(key)) << 8) ^ static_cast<size_t>(std::get<3>(key));
    }
  };
  static auto* table = new std::unordered_map<Key, std::unique_ptr<Signature>, Hash>;
  auto& slot = (*table)[Key{form, base, other, device}];
  if (slot) return slot.get();
  auto s = std::make_unique<Signature>();
  s->device = device;
  switch (form) {
    case Form::kEmpty:
      s->name = "pjrt::empty";
      s->results = {base};
      break;
    case Form::kView:  // other: the view's sizes and strides, in its own dtype
      s->name = "pjrt::view";
      s->parameters = {operand("base", 0, base), attribute("sizes", other->sizes), attribute("strides", other->strides),
                       number("offset", 0)};
      s->operands = {base};
      s->scalars = 1;
      s->results = {graph::intern_contiguous(other->dtype, other->sizes)};
      break;
    case Form::kWrite:
    case Form::kWriteBox:
      s->name = "pjrt::write";
      s->parameters = {operand("base", 0, base), operand("update", 1, other), attribute("sizes", other->sizes),
                       attribute("strides", other->strides), number("offset", 0)};
      if (form == Form::kWriteBox) s->parameters.push_back(flag("box"));
      s->operands = {base, other};
      s->scalars = 1;
      s->results = {base};
      break;
    case Form::kConvert:
      s->name = "pjrt::convert";
      s->parameters = {operand("input", 0, base)};
      s->operands = {base};
      s->results = {other};
      break;
  }
  slot = std::move(s);
  return slot.get();
}

Value node(SignaturePtr signature, std::initializer_list<const Value*> operands,
           std::initializer_list<ScalarValue> scalars) {
  c10::SmallVector<Value, 3> values;
  for (const Value* value : operands) values.push_back(*value);
  c10::SmallVector<ScalarValue, 2> all(scalars);
  return {graph::make_node(signature, values, all), 0};
}

bool is_own(const graph::Node& node, std::string_view name) {
  return !node.is_leaf() && !node.signature->op && node.signature->name == name;
}

// A view of a storage's value, and the update written to it.
struct Write {
  TypePtr part;
  int64_t offset;
  Value update;
};

// If the update is `base` at that same view with another update written to a box of it (functionalization's form of a
// write to a view of a view), returns the inner write, with its position in the base.
std::optional<Write> inner_write(const Value& base, const Write& outer) {
  const graph::Node& inner = *outer.update.node;
  if (!is_own(inner, "pjrt::write")) return std::nullopt;
  const graph::Node& read = *inner.operands[0].node;
  if (!is_own(read, "pjrt::view") || !(read.operands[0] == base)) return std::nullopt;
  const bool same = read.scalars[0].as_int() == outer.offset &&
                    read.signature->results[0]->dtype == outer.part->dtype &&
                    read.signature->parameters[1].constant.toIntVector() == c10::IntArrayRef(outer.part->sizes) &&
                    read.signature->parameters[2].constant.toIntVector() == c10::IntArrayRef(outer.part->strides);
  if (!same) return std::nullopt;
  const graph::TensorType& written = *inner.signature->operands[1];
  const std::optional<graph::Box> box =
      graph::box_of(*inner.signature->operands[0], written, inner.scalars[0].as_int());
  if (!box) return std::nullopt;
  graph::Sizes strides(written.sizes.size(), 1);
  int64_t offset = outer.offset;
  for (size_t d = 0; d < box->axes.size(); ++d) {
    offset += box->starts[d] * outer.part->strides[d];
    if (box->axes[d] >= 0) strides[static_cast<size_t>(box->axes[d])] = outer.part->strides[d];
  }
  return Write{graph::intern(written.dtype, written.sizes, strides), offset, inner.operands[1]};
}

// Returns the storage's value; memory that was never written reads as zeros.
Value current(const at::Tensor& tensor, LazyStorage* storage) {
  if (!storage->slot.value()) {
    TypePtr form;
    if (covers_storage(tensor)) {
      form = type_of(tensor);
    } else {
      const auto size = static_cast<int64_t>(c10::elementSize(tensor.scalar_type()));
      const auto nbytes = static_cast<int64_t>(storage->nbytes());
      form = nbytes % size == 0 ? graph::intern_contiguous(tensor.scalar_type(), {nbytes / size})
                                : graph::intern_contiguous(c10::kByte, {nbytes});
    }
    storage->slot.bind(node(interned(Form::kEmpty, form, nullptr, storage->device().index()), {}, {}));
  }
  return storage->slot.value();
}

// Returns `count` elements of dtype from the start of the value's memory.
Value flat(const Value& value, c10::ScalarType dtype, int64_t count, c10::DeviceIndex device) {
  TypePtr target = graph::intern_contiguous(dtype, {count});
  if (value.type() == target) return value;
  return node(interned(Form::kView, value.type(), target, device), {&value}, {ScalarValue::of(int64_t{0})});
}

}  // namespace

bool covers_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
}

TypePtr type_of(const at::Tensor& tensor) {
  return graph::intern(tensor.scalar_type(), tensor.sizes(), tensor.strides());
}

Value read(const at::Tensor& tensor) {
  LazyStorage* storage = storage_of(tensor);
  if (C10_UNLIKELY(storage->whole != nullptr)) {
    TORCH_CHECK(
        storage->whole->counter.current_version() == storage->whole->version,
        "x.narrow(dim, start, n), whose start differs by rank, is read after x has changed in place. It is a "
        "copy in a world in one process, and has x's old values. Take it anew, or clone() it before the change");
  }
  Value value = current(tensor, storage);
  TypePtr form = value.type();
  if (same_place(*form, tensor)) return value;
  return node(interned(Form::kView, form, type_of(tensor), storage->device().index()), {&value},
              {ScalarValue::of(tensor.storage_offset())});
}

std::optional<Shown> shown(const at::Tensor& tensor) {
  const Value& value = storage_of(tensor)->slot.value();
  if (!value) {
    if (!covers_storage(tensor) || tensor.numel() == 0) return std::nullopt;
    return Shown{{}, &tensor, false};
  }
  if (!value.is_leaf() || !value.node->data) return std::nullopt;
  return Shown{value, &tensor, !same_place(*value.type(), tensor)};
}

SignaturePtr signature_of_write(const at::Tensor& tensor) {
  const TypePtr base = current(tensor, storage_of(tensor)).type();
  return interned(Form::kWrite, base, type_of(tensor), tensor.device().index());
}

WriteWatcher::WriteWatcher() : outer_(std::exchange(watcher, this)) {}
WriteWatcher::~WriteWatcher() { watcher = outer_; }
bool WriteWatcher::is_there() { return watcher != nullptr; }

void write(const at::Tensor& tensor, Value value) {
  LazyStorage* storage = storage_of(tensor);
  if (C10_UNLIKELY(watcher != nullptr)) watcher->before_write(storage);
  const auto device = storage->device().index();
  if (covers_storage(tensor)) {
    TypePtr type = value.type();
    if (!same_place(*type, tensor)) value = convert(value, type_of(tensor), device);
    storage->slot.bind(std::move(value));
    return;
  }
  if (tensor.numel() == 0) return;
  Value base = current(tensor, storage);
  Write write{type_of(tensor), tensor.storage_offset(), std::move(value)};
  while (std::optional<Write> inner = inner_write(base, write)) write = *std::move(inner);
  // The choice is part of the signature, so it holds for every offset of a program whose offset varies.
  const Form form = graph::box_of(*base.type(), *write.part, write.offset) ? Form::kWriteBox : Form::kWrite;
  storage->slot.bind(
      node(interned(form, base.type(), write.part, device), {&base, &write.update}, {ScalarValue::of(write.offset)}));
}

Value convert(const Value& value, TypePtr result, c10::DeviceIndex device) {
  return node(interned(Form::kConvert, value.type(), result, device), {&value}, {});
}

void write_prefix(LazyStorage* storage, Value old, c10::ScalarType dtype) {
  const auto device = storage->device().index();
  const auto itemsize = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t before = static_cast<int64_t>(old.type()->nbytes()) / itemsize;
  TypePtr form = graph::intern_contiguous(dtype, {static_cast<int64_t>(storage->nbytes()) / itemsize});
  Value base = node(interned(Form::kEmpty, form, nullptr, device), {}, {});
  Value prefix = flat(old, dtype, before, device);
  storage->slot.bind(
      node(interned(Form::kWrite, form, prefix.type(), device), {&base, &prefix}, {ScalarValue::of(int64_t{0})}));
}

void keep_prefix(LazyStorage* storage, const Value& old) {
  const auto nbytes = static_cast<int64_t>(storage->nbytes());
  const auto itemsize = static_cast<int64_t>(c10::elementSize(old.type()->dtype));
  const c10::ScalarType dtype = nbytes % itemsize == 0 ? old.type()->dtype : c10::kByte;
  storage->slot.bind(
      flat(old, dtype, nbytes / static_cast<int64_t>(c10::elementSize(dtype)), storage->device().index()));
}

std::vector<int64_t> shared_dims(const at::Tensor& tensor) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) dims.push_back(dim);
  }
  return dims;
}

at::Tensor one_of(at::Tensor tensor, const std::vector<int64_t>& dims) {
  for (const int64_t dim : dims) tensor = tensor.narrow(dim, 0, 1);
  return tensor;
}

}  // namespace tpjrt::device
