// Reads and writes a tensor's value through its storage: where views meet the lazy graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "device/services/engine.h"
#include "device/tensor/storage.h"
#include "graph/node.h"
#include "graph/signature.h"

namespace tpjrt::device {

// Returns the tensor's value. All functions here need graph::graph_lock().
graph::Value read(const at::Tensor& tensor);
// Gives the tensor a new value of its sizes and dtype. If the tensor covers its storage, the value (and form) of the
// storage is replaced; otherwise the new value is written into it.
void write(const at::Tensor& tensor, graph::Value value);
// Returns whether the tensor is all of its storage's memory.
bool covers_storage(const at::Tensor& tensor);
// Returns what the tensor shows if its storage's value is in memory or was never written; nothing if that value is
// still to be computed.
std::optional<Shown> shown(const at::Tensor& tensor);
// Returns the signature of the node that write() would make for a part of a storage. Writes to equal parts share it.
graph::SignaturePtr signature_of_write(const at::Tensor& tensor);
// Called before each write of this thread, for code that records calls which are not meant to change anything.
class WriteWatcher {
 public:
  WriteWatcher();
  virtual ~WriteWatcher();
  WriteWatcher(const WriteWatcher&) = delete;
  WriteWatcher& operator=(const WriteWatcher&) = delete;
  // Under graph_lock().
  virtual void before_write(LazyStorage* storage) = 0;
  // Returns whether this thread has one.
  static bool is_there();

 private:
  WriteWatcher* outer_;
};
// Returns `value` with another dtype or other strides, as a node of this project.
graph::Value convert(const graph::Value& value, graph::TypePtr result, c10::DeviceIndex device);
// For storages whose size changes: the old value becomes the start of the (larger) memory, seen as `dtype`; or the
// (smaller) memory becomes the start of the old value.
void write_prefix(LazyStorage* storage, graph::Value old, c10::ScalarType dtype);
void keep_prefix(LazyStorage* storage, const graph::Value& old);
// Returns the tensor's type with its actual strides.
graph::TypePtr type_of(const at::Tensor& tensor);
// Returns the dimensions of a tensor, of any device, along which elements share memory.
std::vector<int64_t> shared_dims(const at::Tensor& tensor);
// Returns the first element along each of these dimensions.
at::Tensor one_of(at::Tensor tensor, const std::vector<int64_t>& dims);

}  // namespace tpjrt::device
