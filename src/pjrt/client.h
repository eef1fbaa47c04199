// A client: one plugin's devices, on which it creates buffers and executables.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/api/api.h"
#include "pjrt/api/event.h"
#include "pjrt/buffer.h"
#include "pjrt/executable.h"
#include "pjrt/key_values.h"
#include "pjrt/memory.h"
#include "pjrt/stream.h"

namespace tpjrt::pjrt {

// The properties of a device, queried once when its client is created. `handle` belongs to the client and lives as long
// as it.
struct Device {
  PJRT_Device* handle = nullptr;
  int id = 0;                  // unique among all devices of the platform, including other hosts'
  int process = 0;             // that owns it (Node::id)
  bool is_ours = true;         // this process may use it
  int local_hardware_id = -1;  // the platform's own number, such as CUDA's; -1: none
  std::string kind;            // "cpu", "NVIDIA H100 80GB HBM3"
  std::string debug_string;
  std::map<std::string, std::string> attributes;  // plugin-specific, see pjrt::to_string(PJRT_NamedValue)
};

// Queries the plugin. Properties that it doesn't implement keep their defaults.
Device describe(const Api& api, PJRT_Device* handle);

// How buffer_from_host uses host memory. On devices with their own memory, both zero-copy modes only read it until the
// transfer is done.
enum class HostBufferSemantics {
  kCopy,               // read only during the call
  kZeroCopyImmutable,  // aliased and never written; the caller doesn't write to it until `release` runs
  kZeroCopyMutable,    // aliased; an execution that the buffer is donated to writes its result there
};

// Everything that a client creates keeps it alive. Its owner should leak it, because runtimes have threads and plugins'
// globals may be gone while the process exits. Thread-safe.
class Client : public std::enable_shared_from_this<Client> {
 public:
  // Creates a client. `options` are the plugin's own, such as {"memory_fraction", 0.5} on a GPU and
  // {"cpu_device_count", 1} (an int64_t) on the CPU, which has 4 devices otherwise. Plugins ignore an unknown one or
  // throw Error.
  // With `replicas` above 1 every program runs on as many devices, and host data is copied to each (Note [World],
  // graph/world.h).
  static std::shared_ptr<Client> create(const Api& api, const Options& options = {}, size_t replicas = 1);
  // Creates one process's part of a client of several processes, with one device each. Waits for the others, up to the
  // plugin's time limit. Also throws Error if this process would have several devices.
  static std::shared_ptr<Client> create(const Api& api, Options options, const Node& node);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Api& api() const { return api_; }
  PJRT_Client* handle() const { return handle_; }
  const std::string& platform_name() const { return platform_name_; }  // "cpu", "cuda"
  const std::string& platform_version() const { return platform_version_; }
  // This process's devices and, at their indices, those of the host's other processes (Device::is_ours). device_index
  // and device_ordinal everywhere in this room are indices into it.
  const std::vector<Device>& devices() const { return devices_; }
  // Index of the first device that is this process's own.
  size_t own_device() const;
  // Returns true if other processes have devices of the client, too.
  bool spans_processes() const { return !ids_by_process_.empty(); }
  // Counts the memory of the buffers on this device.
  MemoryUse& memory(size_t device_index) const { return memory_[device_index]; }
  // The plugin's own statistics of this device's memory; see device_memory_stats.
  std::map<std::string, int64_t> memory_stats(size_t device_index) const;
  // Returns true if device memory is the host's. Buffers then have a host_pointer().
  bool is_host_memory() const { return is_host_memory_; }
  // Returns true if programs and the host's kernels use the same memory: zero-copy doesn't copy. Replicas have values
  // of their own.
  bool shares_memory() const { return is_host_memory_ && replicas_ == 1; }
  size_t replicas() const { return replicas_; }

  // Alignment of `data` that zero-copy needs. Other memory is silently copied: then nothing is updated in place, and
  // `release` runs after the copy. Buffer::host_pointer() shows whether it was copied.
  static constexpr size_t kZeroCopyAlignment = 64;

  // Creates a buffer with a copy of, or over, dense row-major host memory; with replicas a copy on each of their
  // devices. `release` may be empty. It runs exactly once, when the runtime no longer uses the memory: on return for
  // kCopy, otherwise on any thread, possibly before this returns. If this throws, `release` has run. `data` may be null
  // if the array is empty.
  std::shared_ptr<Buffer> buffer_from_host(const void* data, PJRT_Buffer_Type type, std::span<const int64_t> dims,
                                           HostBufferSemantics semantics, size_t device_index,
                                           std::function<void()> release);
  // Likewise with an existing type, which avoids making one.
  std::shared_ptr<Buffer> buffer_from_host(const void* data, std::shared_ptr<const BufferType> type,
                                           HostBufferSemantics semantics, size_t device_index,
                                           std::function<void()> release);

  // Like kZeroCopyImmutable if the memory is shared, aligned and not empty; otherwise like kCopy.
  std::shared_ptr<Buffer> buffer_of_constant(const void* data, std::shared_ptr<const BufferType> type,
                                             size_t device_index, std::function<void()> release);

  // Creates a buffer like kZeroCopyMutable over aligned, non-empty memory, if device memory is the host's. The runtime
  // gets it at the first Buffer::handle(), which may throw. `release` runs when nobody uses the memory any more.
  std::shared_ptr<Buffer> buffer_over_host(void* data, std::shared_ptr<const BufferType> type, size_t device_index,
                                           std::function<void()> release);

  // The number of host arrays that the runtime has got so far.
  uint64_t handed_over() const { return handed_over_.load(std::memory_order_relaxed); }

  // Creates a buffer over dense row-major device memory that others own and keep while the buffer exists. It must not
  // be donated. `stream` is 0 or comes from plugin_stream(): executions with the buffer run after everything queued
  // there by now. `data` may be null if the array is empty.
  std::shared_ptr<Buffer> view_of_device_memory(const void* data, std::shared_ptr<const BufferType> type,
                                                size_t device_index, StreamHandle stream = 0);

  // Returns the ids of the devices that a program runs on (Device::id).
  std::vector<int> device_ids(const CompileOptions& options) const;

  // Compiles StableHLO, as text or bytecode. Throws Error with the compiler's message.
  std::shared_ptr<Executable> compile(const std::string& stablehlo, const CompileOptions& options);
  // Compiles for the first of this process's devices.
  std::shared_ptr<Executable> compile(const std::string& stablehlo);
  // Loads the result of Executable::serialize, from this or another process with the same plugin. Throws Error. The
  // plugin runs its content, so it must be trusted.
  std::shared_ptr<Executable> deserialize(const std::string& serialized, const CompileOptions& options = {});

 private:
  explicit Client(const Api& api) : api_(api) {}
  static std::shared_ptr<Client> create(const Api& api, const Options& options, const Node* node, size_t replicas);
  // Finds the devices of all processes; those of this host become devices_.
  void find_devices(const Node& node);
  friend class Buffer;
  // Creates a buffer over this memory, and the event that is ready when the memory isn't used any more.
  std::pair<PJRT_Buffer*, Event> hand_over(const void* data, const BufferType& type, size_t device_index,
                                           HostBufferSemantics semantics = HostBufferSemantics::kZeroCopyMutable) const;
  std::string serialized_options(const CompileOptions& options) const;
  // Calls `call` with serialized options, without the hints that the plugin rejects.
  void with_options(const CompileOptions& options, const std::function<void(const std::string&)>& call);
  // Returns a device. Throws Error if it is another process's.
  const Device& own(size_t device_index) const;
  // Tries it with a small buffer.
  bool ask_is_host_memory();

  const Api& api_;
  PJRT_Client* handle_ = nullptr;
  std::string platform_name_;
  std::string platform_version_;
  std::vector<Device> devices_;
  std::shared_ptr<KeyValueStore> store_;  // for clients of several processes
  std::vector<int> ids_by_process_;
  std::unique_ptr<MemoryUse[]> memory_;  // by device
  bool is_host_memory_ = false;
  size_t replicas_ = 1;
  mutable std::atomic<uint64_t> handed_over_{0};
  mutable std::mutex unknown_lock_;
  std::set<std::string> unknown_hints_;  // among CompileOptions::hints
};

}  // namespace tpjrt::pjrt
