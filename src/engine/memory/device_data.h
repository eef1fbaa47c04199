// A leaf's data: a PJRT buffer that holds a storage's memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

#include "engine/lower/module/assertions.h"
#include "graph/errors.h"
#include "graph/node.h"
#include "pjrt/buffer.h"

namespace tpjrt::engine {

struct DeviceData final : graph::Data {
  explicit DeviceData(std::shared_ptr<pjrt::Buffer> buffer, bool borrowed = false)
      : buffer(std::move(buffer)), borrowed(borrowed) {}
  std::shared_ptr<pjrt::Buffer> buffer;
  bool borrowed;  // somebody else owns the memory (Engine::borrow)
  // Runtime assertions that the values depend on (Note [Runtime assertions]); null: none. Set before the leaf is
  // shared.
  ChecksPtr checks;
  // Which ranks of a world have equal values (Note [Replication analysis]); null: all.
  std::shared_ptr<const std::vector<uint32_t>> replication;
  // A tensor over the same memory, without ownership, made when the interpreter first uses it
  // (LazyEngine::kept_tensor). Guarded by the session's lock.
  at::Tensor host;
  // The stream on which CUDA memory of PyTorch's, which the buffer views, was allocated (Note
  // [Interpreter tier on CUDA]).
  std::optional<c10::Stream> lender;
  // Live views of this memory on the host hold references to `buffer`, which then is never donated.
  bool is_shared() const { return borrowed || buffer.use_count() > 1; }
};

// Raises for a placeholder, which a traced function may have left in some object.
inline const DeviceData& data_of(const graph::Node& leaf) {
  if (!leaf.data) {
    throw graph::DependsOnData(
        "pjrt: this tensor was made while a program was traced, and has no value: it was kept somewhere by the traced "
        "function. Return it instead",
        &leaf);
  }
  const auto& data = static_cast<const DeviceData&>(*leaf.data);
  TORCH_CHECK(data.buffer,
              "pjrt: this tensor's memory was written over by a run that failed, so it has no value any more");
  return data;
}

// Returns true if only this graph and the walk hold the leaf, so that nobody can read its values afterwards.
inline bool is_last(const graph::NodePtr& leaf) {
  return leaf.use_count() == leaf->uses + 1 && !data_of(*leaf).is_shared();
}

PJRT_Buffer_Type buffer_type(c10::ScalarType dtype);
std::shared_ptr<const pjrt::BufferType> buffer_type(const graph::TensorType& type);

// Returns the form of a dense tensor. The form of memory for a program comes from the tensor over it, never from the
// operand type of the call that reads it.
graph::TypePtr form_of(const at::Tensor& dense);
// Returns true if TORCH_PJRT_CHECK_MEMORY=1, as in the tests: forms are then checked against memory.
bool checks_memory();
void assert_has_layout(const graph::TensorType& form, const at::Tensor& memory);
// Returns a leaf whose memory is `buffer`, laid out as `form` says.
graph::NodePtr leaf_of(graph::TypePtr form, std::shared_ptr<pjrt::Buffer> buffer, bool borrowed = false);

}  // namespace tpjrt::engine
