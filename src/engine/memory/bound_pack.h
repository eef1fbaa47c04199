// A pack (Note [Packs]) in the calls of one compiled graph: its memory and the buffer over it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "graph/tape/packs.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// Used by one call at a time.
class BoundPack {
 public:
  // `result`: the program's, with the new values.
  BoundPack(const graph::Pack& pack, uint32_t result);

  // Copies a member from the memory of its tensor on the CPU.
  void put(size_t member, const at::Tensor& tensor);
  // What the program takes.
  PJRT_Buffer* bind(pjrt::Client& client, size_t device_index);
  // The program has run.
  void take(const std::vector<std::shared_ptr<pjrt::Buffer>>& outputs);
  // Copies a new value to where the member came from.
  void get(size_t member, const at::Tensor& tensor) const;
  // The buffer may have been donated to a program that failed.
  void let_go() { buffer_.reset(); }

  std::vector<uint32_t> arguments;  // of the call: where each member comes from

 private:
  struct Span {
    size_t first, nbytes;
  };
  std::vector<Span> spans_;
  std::shared_ptr<const pjrt::BufferType> type_;
  uint32_t result_;
  at::DataPtr memory_;
  std::shared_ptr<pjrt::Buffer> buffer_;  // over the memory, also between calls
};

}  // namespace tpjrt::engine
