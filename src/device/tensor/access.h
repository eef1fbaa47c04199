// Reading and writing a tensor's value through its storage: where views meet the lazy graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "device/services/engine.h"
#include "device/tensor/storage.h"
#include "graph/node.h"

namespace tpjrt::device {

// The value a tensor shows. All of these under graph::graph_lock().
graph::Value read(const at::Tensor& tensor);
// Gives the tensor a new value, which has its sizes and dtype. A tensor that covers its storage replaces the storage's
// value (and form); a smaller one is written into it.
void write(const at::Tensor& tensor, graph::Value value);
// Whether the tensor is all of its storage's memory.
bool covers_storage(const at::Tensor& tensor);
// What the tensor shows, if its storage's value is in memory or was never written; nothing where that is still to be computed.
std::optional<Shown> shown(const at::Tensor& tensor);
// The signature of the node that write() would make for a part of a storage: one for all writes to like places.
graph::SignaturePtr signature_of_write(const at::Tensor& tensor);
// Is told of each write of this thread, before it: for those who record calls that are not meant to change anything.
class WriteWatcher {
 public:
  WriteWatcher();
  virtual ~WriteWatcher();
  WriteWatcher(const WriteWatcher&) = delete;
  WriteWatcher& operator=(const WriteWatcher&) = delete;
  // Under graph_lock().
  virtual void before_write(LazyStorage* storage) = 0;
  // Does this thread have one?
  static bool is_there();

 private:
  WriteWatcher* outer_;
};
// The same call for a node of this project, interned: name, one operand, attributes.
graph::Value convert(const graph::Value& value, graph::TypePtr result, c10::DeviceIndex device);
// For storages whose size changes: the old value becomes the start of the (larger) memory, seen as `dtype`; or the
// (smaller) memory becomes the start of the old value.
void write_prefix(LazyStorage* storage, graph::Value old, c10::ScalarType dtype);
void keep_prefix(LazyStorage* storage, const graph::Value& old);
// The tensor's type as it stands, strides included.
graph::TypePtr type_of(const at::Tensor& tensor);
// The dimensions of a tensor, of any device, along which elements share memory.
std::vector<int64_t> shared_dims(const at::Tensor& tensor);
// The first along each of these dimensions.
at::Tensor one_of(at::Tensor tensor, const std::vector<int64_t>& dims);

}  // namespace tpjrt::device
