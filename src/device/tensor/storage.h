// The storage of a "pjrt" tensor: a StorageSlot of the lazy graph under a plain c10::StorageImpl.
//
// Only the storage is lazy; tensors above it are ordinary TensorImpls. The value's type states the *form* of the
// memory: dense, offset 0, covering the whole storage. A tensor whose sizes, strides and dtype equal the form reads
// the value itself; any other tensor reads it through a view node and writes it through a write node (access.h).
//
// The data pointer is a unique address in a mapping that can't be read (factory.h). Comparisons and null checks
// behave as usual, and a kernel that mistakes the memory for the host's faults immediately instead of reading
// garbage.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <memory>

#include "graph/node.h"

namespace tpjrt::device {

inline constexpr c10::DeviceType kPjrt = c10::DeviceType::PrivateUse1;

// The tensor that a copy was taken of where PyTorch has a view: x.narrow(dim, start, n) in a world, whose ranks have
// starts of their own. The copy must not be written, nor read once the tensor has changed.
struct Whole {
  c10::VariableVersion counter;
  uint32_t version;
};

class LazyStorage final : public c10::StorageImpl {
 public:
  LazyStorage(size_t nbytes, c10::DeviceIndex device);
  ~LazyStorage() override;
  void release_resources() override;

  graph::StorageSlot slot;       // under graph::graph_lock()
  std::unique_ptr<Whole> whole;  // null: no such copy

 private:
  void drop();
};

// Makes c10 create a LazyStorage for this device type in every case (at::empty, unpickling, …).
void install_storage();

bool is_pjrt(const at::Tensor& tensor);
// Returns the tensor's lazy storage. Throws for another device's storage.
LazyStorage* storage_of(const at::Tensor& tensor);
LazyStorage* storage_of(const c10::Storage& storage);

// Returns a tensor with a new storage, not yet bound to a value.
at::Tensor make_tensor(graph::TypePtr type, c10::DeviceIndex device);
// Records a node, and moves the operands into it. Returns its results. Under graph_lock().
std::vector<at::Tensor> make_node_tensors(graph::SignaturePtr signature, c10::SmallVectorImpl<graph::Value>& operands,
                                          c10::SmallVectorImpl<graph::ScalarValue>& scalars);

}  // namespace tpjrt::device
