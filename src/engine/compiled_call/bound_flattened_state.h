// A flattened state (Note [Flattened state]) in the calls of one compiled graph: its memory and the buffer over it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/fingerprint/flattened_state.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// Used by one call at a time.
class BoundFlattenedState {
 public:
  // `result`: the program's result with the new values.
  BoundFlattenedState(const graph::FlattenedState& state, uint32_t result);

  // Copies a member from its tensor's memory on the CPU.
  void put(size_t member, const at::Tensor& tensor);
  // Returns the buffer that the program takes.
  const pjrt::Buffer* bind(pjrt::Client& client, size_t device_index);
  // Takes the new values after the program has run.
  void take(const std::vector<std::shared_ptr<pjrt::Buffer>>& outputs);
  // Copies a member's new value back to its tensor.
  void get(size_t member, const at::Tensor& tensor) const;
  // Drops the buffer: it may have been donated to a program that failed.
  void let_go() { buffer_.reset(); }

  std::vector<uint32_t> arguments;  // arguments of the call that the members come from

 private:
  struct Span {
    size_t first, nbytes;
  };
  std::vector<Span> spans_;
  std::shared_ptr<const pjrt::BufferType> type_;
  uint32_t result_;
  at::DataPtr memory_;
  std::shared_ptr<pjrt::Buffer> buffer_;  // over the memory, kept between calls
};

}  // namespace tpjrt::engine
