// Orders PyTorch's streams and the plugin's, and returns memory to the plugin.
#include "engine/memory/cuda.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <dlfcn.h>

#include <deque>
#include <mutex>
#include <utility>

namespace tpjrt::engine::cuda {
namespace {

// Streams of torch 2.11 have no is_capturing(). CUDA's runtime, which PyTorch has loaded with global symbols, can tell.
bool is_captured(const auto& stream) {
  if constexpr (requires { stream.is_capturing(); }) {
    return stream.is_capturing();
  } else {
    using Ask = int(void* stream, int* status);
    static auto* ask = reinterpret_cast<Ask*>(dlsym(RTLD_DEFAULT, "cudaStreamIsCapturing"));
    int status = 0;  // cudaStreamCaptureStatusNone
    return ask && ask(stream.native_handle(), &status) == 0 && status != 0;
  }
}

// Owned by a storage over a result's memory.
struct Lent {
  std::shared_ptr<pjrt::Buffer> buffer;
  c10::Stream stream;
};

// Memory without an owner that a stream may still use.
class Returned {
 public:
  static Returned& instance() {
    static auto* all = new Returned;  // leaked: storages may be freed while the process exits
    return *all;
  }
  void add(Lent lent) {
    c10::Event used(lent.stream.device_type());
    used.record(lent.stream);
    std::lock_guard guard(lock_);
    waiting_.emplace_back(std::move(used), std::move(lent.buffer));
  }
  // Returns memory to the plugin that no stream uses any more.
  void sweep() {
    std::lock_guard guard(lock_);
    while (!waiting_.empty() && waiting_.front().first.query()) waiting_.pop_front();
  }

 private:
  std::mutex lock_;
  std::deque<std::pair<c10::Event, std::shared_ptr<pjrt::Buffer>>> waiting_;
};

void give_back(void* context) {
  auto* lent = static_cast<Lent*>(context);
  try {
    Returned::instance().add(*lent);
    // CUDA allows no event queries while a stream is captured.
    if (!is_captured(current_stream(lent->stream.device()))) Returned::instance().sweep();
    delete lent;
  } catch (const std::exception& error) {  // at process exit the platform is gone, and the memory with it
    TORCH_WARN("memory of a compiled function's result is not given back: ", error.what());
  }
}

}  // namespace

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

void check_not_captured(const c10::Stream& stream) {
  TORCH_CHECK(
      !is_captured(stream),
      "what device 'pjrt' and functions compiled by backend 'pjrt' do can't be part of a CUDA graph: the plugin has "
      "streams of its own. Do it outside of torch.cuda.graph");
}

void waits_for(const c10::Stream& stream, const c10::Stream& other) {
  c10::Event queued(stream.device_type());
  queued.record(other);
  queued.block(stream);
}

bool is_shared(const pjrt::Client& client, c10::DeviceType type) {
  return type == c10::kCUDA && (client.platform_name() == "cuda" || client.platform_name() == "rocm");
}

size_t device_index(const pjrt::Client& client, c10::Device device) {
  const auto& devices = client.devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].local_hardware_id == device.index()) return i;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "the plugin has no device for '", device, "'; it has ", devices.size(), ", ",
                              devices.empty() ? "" : devices.front().debug_string, " the first");
}

pjrt::StreamHandle after_current_stream(const pjrt::Client& client, size_t device_index, c10::Device device) {
  const c10::Stream current = current_stream(device);
  check_not_captured(current);
  Returned::instance().sweep();
  const auto stream = pjrt::plugin_stream(client, device_index);
  if (!stream) {
    current.synchronize();
    return 0;
  }
  waits_for(c10::Stream(c10::Stream::UNSAFE, device, *stream),
            current);  // the id of an external stream is its handle
  return *stream;
}

void current_stream_waits(const pjrt::Buffer& buffer, c10::Device device) {
  stream_waits(buffer, current_stream(device));
}

void stream_waits(const pjrt::Buffer& buffer, const c10::Stream& stream) {
  if (!pjrt::wait_on_stream(buffer, reinterpret_cast<pjrt::StreamHandle>(stream.native_handle()))) buffer.await();
}

c10::Storage storage_over(std::shared_ptr<pjrt::Buffer> buffer, size_t nbytes, c10::Device device) {
  void* data = nbytes > 0 ? buffer->device_pointer() : nullptr;
  auto lent = std::make_unique<Lent>(Lent{std::move(buffer), current_stream(device)});
  c10::DataPtr memory(data, lent.get(), &give_back, device);
  (void)lent.release();
  return {c10::Storage::use_byte_size_t(), nbytes, std::move(memory), nullptr, /*resizable=*/false};
}

std::shared_ptr<pjrt::Buffer> buffer_under(const c10::DataPtr& memory) {
  return memory.get_deleter() == &give_back ? static_cast<Lent*>(memory.get_context())->buffer : nullptr;
}

}  // namespace tpjrt::engine::cuda
