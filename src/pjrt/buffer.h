// Arrays in a device's memory, and their types.
#pragma once

#include <pjrt_c_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

// Element types of PJRT buffers: sizes and names.

// Returns the bytes of one element in host memory, where types under 8 bits take a byte each. 0 for TOKEN, INVALID and
// types of a later API.
size_t byte_width(PJRT_Buffer_Type type);

// Returns XLA's spelling: "pred", "s32", "bf16", "c64". "unknown" for types of a later API.
std::string_view spelling(PJRT_Buffer_Type type);

class Client;

// Immutable and shared, so that wrapping a result of a known type costs no more than its handle.
struct BufferType {
  BufferType(PJRT_Buffer_Type element_type, std::vector<int64_t> dims);
  PJRT_Buffer_Type element_type;
  std::vector<int64_t> dims;
  size_t size_in_bytes;  // dense, in host memory
};

// A dense row-major layout, as the C API describes it.
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

// An array. A Buffer owns its PJRT_Buffer and keeps the client alive. Client::buffer_from_host and Executable::execute
// make it. It is shared by shared_ptr and thread-safe. Its data may not be computed yet: await() waits. A Buffer that
// was donated to an execution is deleted: only is_deleted(), its type and its destructor remain usable.
//
// In a process with a world of devices (Note [World], graph/world.h), an array is the first device's Buffer, which owns
// the Buffers of the others: of one type, with values of their own. Its functions answer for the first device, except
// await(), which waits for all, and the counters.
//
// A Buffer over host memory (Client::buffer_over_host) is registered with the runtime when handle() is first called.
// Memory that no program takes costs nothing but its count.
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

  // Returns the handle. Throws Error if the runtime rejects the memory.
  PJRT_Buffer* handle() const {
    PJRT_Buffer* handle = handle_.load(std::memory_order_acquire);
    return handle ? handle : hand_over();
  }
  // Returns true if the runtime has the memory.
  bool is_handed_over() const { return handle_.load(std::memory_order_acquire) != nullptr; }
  const std::shared_ptr<const BufferType>& type() const { return type_; }
  PJRT_Buffer_Type element_type() const { return type_->element_type; }
  const std::vector<int64_t>& dims() const { return type_->dims; }
  size_t size_in_bytes() const { return type_->size_in_bytes; }
  // Index into Client::devices().
  size_t device_index() const { return device_index_; }
  // Adds the other devices' values in a world, before the Buffer is shared.
  void set_replicas(std::vector<std::shared_ptr<Buffer>> others) { others_ = std::move(others); }
  // The number of devices that have values, and the value of the i-th. Throws Error if it doesn't exist.
  size_t replicas() const { return 1 + others_.size(); }
  const Buffer& replica(size_t i) const;
  const Client& client() const { return *client_; }

  // Blocks until the data is computed. Throws the computation's failure, on every call.
  void await() const;
  // Called by a thread that has waited for the computation.
  void mark_ready() const { ready_.store(true, std::memory_order_release); }
  // Returns true if some thread has seen the data ready.
  bool is_seen() const { return ready_.load(std::memory_order_acquire); }
  // Returns true if the data is ready or its computation has failed.
  bool is_ready() const;
  // Returns the address of the data, dense and row-major, after await(); null unless device memory is the host's. The
  // address is valid and constant until the Buffer is destroyed or donated. An empty buffer may have any address.
  const void* host_pointer() const;
  // Returns the address of the data in device memory, computed or not. Valid for as long as host_pointer()'s.
  void* device_pointer() const;
  // Copies the data, dense and row-major (on the CPU in the program's layout), and waits for it. `bytes` is at least
  // size_in_bytes().
  void copy_to_host(void* dst, size_t bytes) const;
  // Copies `bytes` bytes starting at `offset`. Copies everything if the plugin can't copy a part.
  void copy_raw_to_host(void* dst, size_t offset, size_t bytes) const;
  // Returns true if it was donated to an execution.
  bool is_deleted() const;
  // Sets whether its memory is part of Client::memory. False once it is given to an execution that writes a result over
  // it, which then counts the memory.
  void set_counted(bool counted) const;
  // Returns a copy on another device of the same client without waiting. On its own device it copies or throws Error,
  // depending on the plugin.
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
  std::vector<std::shared_ptr<Buffer>> others_;  // in a world: the second device's value, and so on
  mutable std::atomic<bool> counted_{false};
  mutable std::atomic<bool> ready_{false};          // seen ready, without error: await() need not ask again
  mutable std::atomic<const void*> data_{nullptr};  // host_pointer(), once asked for
  mutable std::function<void()> release_;           // of the memory, until the runtime has it
};

}  // namespace tpjrt::pjrt
