// A program's state: a device buffer for each piece, read by entries and written by some.
//
// Entries that only read state share the lock while they are started. Entries that write hold it exclusively, because
// they donate buffers. A piece that a failed run has consumed is null.
#pragma once

#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "file/tensors.h"
#include "pjrt/client.h"
#include "runner/signature.h"
#include "runner/tensor.h"

namespace tpjrt::runner {

class State {
 public:
  // `stored`: the weights and the initial state in the file `path`; `owner` keeps their memory. Weights that no entry
  // writes are used in the mapped file if the device's memory is the host's. Throws file::Error.
  State(std::shared_ptr<pjrt::Client> client, size_t device, const Signature& signature, const file::Tensors& stored,
        std::shared_ptr<const void> owner, const std::string& path);

  std::shared_mutex& lock() const { return lock_; }
  // Call it under the lock. Throws if a failed run has consumed the piece.
  PJRT_Buffer* handle(size_t index) const {
    if (!buffers_[index]) throw_lost(index);
    return buffers_[index]->handle();
  }
  // Call it with the lock held exclusively.
  void set(size_t index, std::shared_ptr<pjrt::Buffer> buffer) { buffers_[index] = std::move(buffer); }
  // Drops deleted buffers after a failed run. Call it with the lock held exclusively.
  void let_go_of_deleted();

  size_t index_of(std::string_view name) const;
  Tensor copy(size_t index) const;
  void set(size_t index, const Tensor& value);
  void save(const std::string& path) const;
  void load(const std::string& path, bool partial);

 private:
  [[noreturn]] void throw_lost(size_t index) const;
  void check_not_frozen(size_t index) const;
  std::shared_ptr<pjrt::Buffer> upload(const file::Stored& stored, std::shared_ptr<const void> owner) const;

  std::shared_ptr<pjrt::Client> client_;
  size_t device_;
  const Signature& signature_;
  mutable std::shared_mutex lock_;
  std::vector<std::shared_ptr<pjrt::Buffer>> buffers_;
};

}  // namespace tpjrt::runner
