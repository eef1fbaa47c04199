// An array in a device's memory.
//
// A Buffer owns its PJRT_Buffer and keeps the client alive. It is made by Client::buffer_from_host and
// Executable::execute, is shared by shared_ptr, and may be used from any thread. Its data may still be on the way:
// await() waits. A Buffer that was donated to an execution is deleted: only is_deleted(), its type and its destruction
// are left.
//
// Note [World]: where one process has a world of devices (torch.distributed's ranks), an array is the first device's Buffer, which
// owns those of the others: of one type, with values of their own. What is asked of it is answered for the first, but for
// await(), which waits for all, and what is counted.
//
// Over memory of the host's (Client::buffer_over_host) the runtime is told of it when somebody first asks for handle(): what
// no program takes costs nothing but its count.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

class Client;

// Immutable and shared, so that wrapping a result of a known type costs no more than its handle.
struct BufferType {
  BufferType(PJRT_Buffer_Type element_type, std::vector<int64_t> dims);
  PJRT_Buffer_Type element_type;
  std::vector<int64_t> dims;
  size_t size_in_bytes;  // dense, in host memory
};

// Dense and row-major, as the C API has it.
class RowMajorLayout {
 public:
  explicit RowMajorLayout(size_t rank);
  RowMajorLayout(const RowMajorLayout&) = delete;
  RowMajorLayout& operator=(const RowMajorLayout&) = delete;
  PJRT_Buffer_MemoryLayout* get() { return &layout_; }

 private:
  std::vector<int64_t> minor_to_major_;
  PJRT_Buffer_MemoryLayout layout_{};
};

class Buffer {
 public:
  // Takes ownership of `handle`, a buffer of `client` on its device number `device_index`.
  Buffer(std::shared_ptr<const Client> client, PJRT_Buffer* handle, std::shared_ptr<const BufferType> type,
         size_t device_index);
  // See Client::buffer_over_host.
  Buffer(std::shared_ptr<const Client> client, void* data, std::shared_ptr<const BufferType> type, size_t device_index,
         std::function<void()> release);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Throws Error where the runtime won't have it.
  PJRT_Buffer* handle() const {
    PJRT_Buffer* handle = handle_.load(std::memory_order_acquire);
    return handle ? handle : hand_over();
  }
  // Does the runtime know of it?
  bool is_handed_over() const { return handle_.load(std::memory_order_acquire) != nullptr; }
  const std::shared_ptr<const BufferType>& type() const { return type_; }
  PJRT_Buffer_Type element_type() const { return type_->element_type; }
  const std::vector<int64_t>& dims() const { return type_->dims; }
  size_t size_in_bytes() const { return type_->size_in_bytes; }
  // Index into Client::devices().
  size_t device_index() const { return device_index_; }
  // Of a world: before anybody else has it.
  void set_replicas(std::vector<std::shared_ptr<Buffer>> others) { others_ = std::move(others); }
  // How many devices have values of it, and the value of the i-th. Throws Error where there is none.
  size_t replicas() const { return 1 + others_.size(); }
  const Buffer& replica(size_t i) const;
  const Client& client() const { return *client_; }

  // Blocks until the data is there. Throws what the computation failed with, each time it is asked.
  void await() const;
  // Told by who waited for the computation: the data is there.
  void mark_ready() const { ready_.store(true, std::memory_order_release); }
  // Has anybody seen that the data is there?
  bool is_seen() const { return ready_.load(std::memory_order_acquire); }
  // Is the data there, or known to have failed?
  bool is_ready() const;
  // Where the data lies, dense and row-major, after await(); null where device memory is not the host's. The address
  // stays valid and the same until the Buffer is destroyed or donated. Of an empty buffer it may be anything.
  const void* host_pointer() const;
  // Where the data lies, or will lie, in the device's own memory. As long as host_pointer()'s.
  void* device_pointer() const;
  // Copies the data, dense and row-major (on the CPU in the order in which a program gave it), and waits for it. `bytes` is
  // size_in_bytes() or more.
  void copy_to_host(void* dst, size_t bytes) const;
  // Copies `bytes` bytes from `offset` on. Costs a copy of the whole where the plugin can't do a part.
  void copy_raw_to_host(void* dst, size_t offset, size_t bytes) const;
  // Was it donated to an execution?
  bool is_deleted() const;
  // Is its memory part of Client::memory? False once it is given to an execution that writes a result over it: then it
  // is the result's.
  void set_counted(bool counted) const;
  // A copy on another device of the same client; does not wait. On its own device it copies or throws
  // Error, as the plugin likes.
  std::shared_ptr<Buffer> copy_to_device(size_t device_index) const;

 private:
  const Api& api() const;
  PJRT_Buffer* hand_over() const;
  void destroy(PJRT_Buffer* handle) const;
  const void* ask_host_pointer() const;

  std::shared_ptr<const Client> client_;
  mutable std::atomic<PJRT_Buffer*> handle_;
  std::shared_ptr<const BufferType> type_;
  size_t device_index_;
  std::vector<std::shared_ptr<Buffer>> others_;  // of a world: the second device's value, and so on
  mutable std::atomic<bool> counted_{false};
  mutable std::atomic<bool> ready_{false};          // seen to be there, without error: await() need not ask again
  mutable std::atomic<const void*> data_{nullptr};  // host_pointer(), once it was asked for
  mutable std::function<void()> release_;           // of the memory, until it is handed over
};

}  // namespace tpjrt::pjrt
