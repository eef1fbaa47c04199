// A client: one plugin's devices, and what makes buffers and executables on them.
//
// Everything made by a client keeps it alive. Its owner should leak it rather than let it die while the process exits:
// runtimes have threads, and plugins' globals may be gone by then. May be used from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/api/api.h"
#include "pjrt/api/event.h"
#include "pjrt/buffer.h"
#include "pjrt/device.h"
#include "pjrt/executable.h"
#include "pjrt/key_values.h"
#include "pjrt/memory.h"
#include "pjrt/stream.h"

namespace tpjrt::pjrt {

// What buffer_from_host may do with the memory it is given. On devices with a memory of their own, both zero-copy modes
// mean: read until the transfer is done.
enum class HostBufferSemantics {
  kCopy,               // read during the call only
  kZeroCopyImmutable,  // aliased and never written; the caller doesn't write it until `release` runs
  kZeroCopyMutable,    // aliased; an execution that the buffer is donated to writes its result there
};

class Client : public std::enable_shared_from_this<Client> {
 public:
  // `options` are the plugin's own, for example {"memory_fraction", 0.5} on a GPU and {"cpu_device_count", 1} (an
  // int64_t) on the CPU, which has 4 devices otherwise. An unknown one is ignored or an Error, as the plugin likes.
  static std::shared_ptr<Client> create(const Api& api, const Options& options = {});
  // One process's part of a client that several have together, each with one device. Waits for the others, by the plugin's
  // own time limit. Throws Error also where it shows several devices.
  static std::shared_ptr<Client> create(const Api& api, Options options, const Node& node);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Api& api() const { return api_; }
  PJRT_Client* handle() const { return handle_; }
  const std::string& platform_name() const { return platform_name_; }  // "cpu", "cuda"
  const std::string& platform_version() const { return platform_version_; }
  // Those this process can use, and in their places those of the host's other processes (Device::is_ours). device_index and
  // device_ordinal everywhere in this room are indices into it.
  const std::vector<Device>& devices() const { return devices_; }
  // The first of its own.
  size_t own_device() const;
  // Has it devices in other processes, too?
  bool spans_processes() const { return !ids_by_process_.empty(); }
  // What the buffers on this device hold.
  MemoryUse& memory(size_t device_index) const { return memory_[device_index]; }
  // What the plugin tells of this device's memory; see device_memory_stats.
  std::map<std::string, int64_t> memory_stats(size_t device_index) const;
  // Is device memory the host's? Then buffers have a host_pointer() and zero-copy is what it says.
  bool is_host_memory() const { return is_host_memory_; }

  // Zero-copy needs this alignment of `data`; memory that lacks it is silently copied (then nothing is updated in
  // place, and `release` runs as soon as the copy is made). Buffer::host_pointer() tells which it was.
  static constexpr size_t kZeroCopyAlignment = 64;

  // A buffer with a copy of, or over, dense row-major host memory. `release` may be empty. It runs exactly once, when
  // the runtime no longer uses the memory: on return for kCopy, else on any thread, perhaps before this returns. If
  // this throws, `release` has run. `data` may be null where the array is empty.
  std::shared_ptr<Buffer> buffer_from_host(const void* data, PJRT_Buffer_Type type, std::span<const int64_t> dims,
                                           HostBufferSemantics semantics, size_t device_index,
                                           std::function<void()> release);
  // The same for a type that is at hand, which saves making one.
  std::shared_ptr<Buffer> buffer_from_host(const void* data, std::shared_ptr<const BufferType> type,
                                           HostBufferSemantics semantics, size_t device_index,
                                           std::function<void()> release);

  // A copy on each of the first devices (Note [World], buffer.h).
  std::shared_ptr<Buffer> replicated_from_host(const void* data, const std::shared_ptr<const BufferType>& type,
                                               size_t replicas);

  // The same as kZeroCopyMutable, of aligned memory that isn't empty, where device memory is the host's. The runtime is told of
  // it by the first Buffer::handle(), which may throw; `release` runs when nobody uses the memory any more.
  std::shared_ptr<Buffer> buffer_over_host(void* data, std::shared_ptr<const BufferType> type, size_t device_index,
                                           std::function<void()> release);

  // How many arrays in host memory the runtime was told of so far.
  uint64_t handed_over() const { return handed_over_.load(std::memory_order_relaxed); }

  // A buffer over dense row-major memory of the device that others own, and keep while the buffer is there. It is not to
  // be donated. `stream` is 0 or one that plugin_stream() gave: executions with the buffer run after what is queued
  // there by now. `data` may be null where the array is empty.
  std::shared_ptr<Buffer> view_of_device_memory(const void* data, std::shared_ptr<const BufferType> type,
                                                size_t device_index, StreamHandle stream = 0);

  // Of the devices that a program runs on (Device::id).
  std::vector<int> device_ids(const CompileOptions& options) const;

  // Compiles StableHLO, as text or bytecode. Throws Error with the compiler's message.
  std::shared_ptr<Executable> compile(const std::string& stablehlo, const CompileOptions& options);
  // For the first of its own devices.
  std::shared_ptr<Executable> compile(const std::string& stablehlo);
  // Loads what Executable::serialize gave, in this or another process with the same plugin. Throws Error. Treat what it
  // is given as trusted: a plugin runs it.
  std::shared_ptr<Executable> deserialize(const std::string& serialized, const CompileOptions& options = {});

 private:
  explicit Client(const Api& api) : api_(api) {}
  static std::shared_ptr<Client> create(const Api& api, const Options& options, const Node* node);
  // Of all processes: those of this host are devices_.
  void find_devices(const Node& node);
  friend class Buffer;
  // A buffer over this memory, and what is over when the memory isn't used any more.
  std::pair<PJRT_Buffer*, Event> hand_over(const void* data, const BufferType& type, size_t device_index,
                                           HostBufferSemantics semantics = HostBufferSemantics::kZeroCopyMutable) const;
  std::string serialized_options(const CompileOptions& options) const;
  // What `call` makes of serialized options: without the hints that the plugin turns out not to know.
  void with_options(const CompileOptions& options, const std::function<void(const std::string&)>& call);
  // Throws Error where it is another process's.
  const Device& own(size_t device_index) const;
  // Finds out by asking a small buffer.
  bool ask_is_host_memory();

  const Api& api_;
  PJRT_Client* handle_ = nullptr;
  std::string platform_name_;
  std::string platform_version_;
  std::vector<Device> devices_;
  std::shared_ptr<KeyValueStore> store_;  // of several processes
  std::vector<int> ids_by_process_;
  std::unique_ptr<MemoryUse[]> memory_;  // by device
  bool is_host_memory_ = false;
  mutable std::atomic<uint64_t> handed_over_{0};
  mutable std::mutex unknown_lock_;
  std::set<std::string> unknown_hints_;  // of CompileOptions
};

}  // namespace tpjrt::pjrt
