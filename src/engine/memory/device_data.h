// A leaf's data: a PJRT buffer that holds a storage's memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

#include "engine/lower/program/requirements.h"
#include "graph/errors.h"
#include "graph/node.h"
#include "pjrt/buffer.h"

namespace tpjrt::engine {

struct DeviceData final : graph::Data {
  explicit DeviceData(std::shared_ptr<pjrt::Buffer> buffer, bool borrowed = false)
      : buffer(std::move(buffer)), borrowed(borrowed) {}
  std::shared_ptr<pjrt::Buffer> buffer;
  bool borrowed;  // the memory is somebody else's (Engine::borrow)
  // What must hold for these values to mean anything (Note [Requirements]). Null: nothing. Before anybody else has the leaf.
  ChecksPtr checks;
  // Of a world: Note [Agreement]. Null: the values of all ranks are equal.
  std::shared_ptr<const std::vector<uint32_t>> agreement;
  // Over the same memory, which it doesn't own, once calls have made or read it (LazyEngine::kept_tensor). Under the session's
  // lock.
  at::Tensor host;
  // Where the memory is PyTorch's on CUDA, which the buffer is a view of: the stream that it was made on (Note [Calls on CUDA]).
  std::optional<c10::Stream> lender;
  // Views of this memory that were handed to the host and are still alive keep `buffer` in more hands than this one:
  // then it is never donated.
  bool is_shared() const { return borrowed || buffer.use_count() > 1; }
};

// Raises for a placeholder, which a traced function may have left behind somewhere.
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

// Do only this graph and the walk itself hold this leaf of it? Then nobody can read its values afterwards.
inline bool is_last(const graph::NodePtr& leaf) {
  return leaf.use_count() == leaf->uses + 1 && !data_of(*leaf).is_shared();
}

PJRT_Buffer_Type buffer_type(c10::ScalarType dtype);
std::shared_ptr<const pjrt::BufferType> buffer_type(const graph::TensorType& type);

// Memory that is handed to a program says itself how it lies: by the tensor over it, never by what the call that reads it
// calls its operand. Of a dense tensor.
graph::TypePtr form_of(const at::Tensor& dense);
// TORCH_PJRT_CHECK_MEMORY=1, as the tests have it: who hands memory over is checked, not believed.
bool checks_memory();
void assert_lies_as(const graph::TensorType& form, const at::Tensor& memory);
// A leaf whose memory lies in `buffer` as `form` says.
graph::NodePtr leaf_of(graph::TypePtr form, std::shared_ptr<pjrt::Buffer> buffer, bool borrowed = false);

}  // namespace tpjrt::engine
