// The engine's interface other than syncs: memory, and transfers between host memory and device buffers.
#include "engine/run/lazy_engine.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "device/host/host.h"
#include "engine/kernel/kernel_call.h"
#include "engine/lower/call_lowering.h"
#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"
#include "engine/replication/replication.h"
#include "engine/session/out_of_memory.h"
#include "graph/signature.h"

namespace tpjrt::engine {

LazyEngine::LazyEngine(Session& session) : session_(session) {}

LazyEngine& LazyEngine::instance() {
  static auto* engine = new LazyEngine(Session::instance());  // leaked, like the session
  return *engine;
}

void LazyEngine::install() { device::install_engine(this); }

bool LazyEngine::report_host_call(const std::string& op, const char* reason) {
  if (session_.run_log.is_on()) session_.run_log.ran_on_host(op, reason);
  return interpret_by() != InterpretBy::kKernels;
}

bool LazyEngine::lowers(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                        std::string& reason) {
  return find_lowering(signature, scalars, session_.target(), reason);
}

device::MemoryUse LazyEngine::memory(c10::DeviceIndex device) {
  device::MemoryUse use;
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  const pjrt::Client* client = session_.started_client();
  if (!client || index >= client->devices().size()) return use;
  const pjrt::MemoryUse& counted = client->memory(index);
  use.current = counted.current_bytes();
  use.peak = counted.peak_bytes();
  use.allocated = counted.allocated_bytes();
  use.allocations = counted.allocations();
  use.frees = counted.frees();
  use.plugin = client->memory_stats(index);
  return use;
}

void LazyEngine::check_capacity(size_t nbytes, c10::DeviceIndex device) {
  if (nbytes <= session_.capacity(device)) return;
  const device::Location where = device::user_location();
  throw_out_of_memory(nbytes, device,
                      where.file.empty() ? "" : "Asked for at " + where.file + ":" + std::to_string(where.line) + ".");
}

void LazyEngine::reset_peak_memory(c10::DeviceIndex device) {
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  const pjrt::Client* client = session_.started_client();
  if (client && index < client->devices().size()) client->memory(index).reset_peak();
}

graph::Value LazyEngine::upload(const at::Tensor& dense, c10::DeviceIndex device, bool owned) {
  return {leaf_of(form_of(dense), to_device(dense, device, owned)), 0};
}

std::shared_ptr<pjrt::Buffer> LazyEngine::to_device(const at::Tensor& dense, c10::DeviceIndex device, bool owned) {
  check_process();
  RECORD_FUNCTION("pjrt::copy_to_device", {});
  const auto type = buffer_type(*form_of(dense));
  pjrt::Client& client = session_.client();
  if (!client.shares_memory()) {
    try {
      return client.buffer_from_host(dense.const_data_ptr(), type, pjrt::HostBufferSemantics::kCopy,
                                     static_cast<size_t>(device), {});
    } catch (const pjrt::Error& error) {
      raise_out_of_memory(error, device, nullptr);
      throw;
    }
  }
  at::Tensor source = dense;
  c10::Storage storage = source.storage();
  owned &= source.storage_offset() == 0 && storage.use_count() <= 2;
  if (!owned || !is_aligned(source.const_data_ptr())) {
    // Makes a copy that the runtime then uses in place.
    try {
      source = at::empty_strided(dense.sizes(), dense.strides(), at::TensorOptions(c10::kCPU).dtype(dense.dtype()));
    } catch (const c10::Error& error) {
      throw_out_of_memory(dense.nbytes(), device, error.what_without_backtrace());
    }
    std::memcpy(source.mutable_data_ptr(), dense.const_data_ptr(), dense.nbytes());
    storage = source.storage();
  }
  if (source.nbytes() > 0) return buffer_over(storage, c10::DataPtr(nullptr, c10::kCPU), type, device);
  return client.buffer_from_host(nullptr, type, pjrt::HostBufferSemantics::kCopy, static_cast<size_t>(device), {});
}

// Hands over the memory alone: a runtime thread must not release a Python object.
std::shared_ptr<pjrt::Buffer> LazyEngine::buffer_over(const c10::Storage& storage, c10::DataPtr left,
                                                      const std::shared_ptr<const pjrt::BufferType>& type,
                                                      c10::DeviceIndex device) {
  void* data = storage.mutable_data();
  auto memory = std::make_shared<c10::DataPtr>(storage.set_data_ptr(std::move(left)));
  return session_.client().buffer_over_host(data, type, static_cast<size_t>(device),
                                            [memory]() mutable { memory.reset(); });
}

std::shared_ptr<DeviceData> LazyEngine::keep(at::Tensor result, const std::shared_ptr<const pjrt::BufferType>& type,
                                             c10::DeviceIndex device) {
  if (!session_.client().shares_memory() || result.nbytes() == 0 || !is_aligned(result.const_data_ptr())) {
    return std::make_shared<DeviceData>(to_device(result, device, /*owned=*/true));
  }
  RECORD_FUNCTION("pjrt::copy_to_device", {});
  void* data = result.mutable_data_ptr();
  auto kept = std::make_shared<DeviceData>(buffer_over(result.storage(), c10::DataPtr(data, c10::kCPU), type, device));
  kept->host = std::move(result);
  return kept;
}

at::Tensor LazyEngine::kept_tensor(const graph::Node& leaf) {
  const graph::TensorType& form = *leaf.leaf_type;
  const pjrt::Buffer& buffer = *data_of(leaf).buffer;
  auto& data = static_cast<DeviceData&>(*leaf.data);
  if (!data.host.defined() || buffer.host_pointer() != data.host.const_data_ptr()) {
    session_.await(buffer);
    void* shared = form.numel() > 0 ? const_cast<void*>(buffer.host_pointer()) : nullptr;
    if (!shared) return host_tensor(leaf);
    RECORD_FUNCTION("pjrt::copy_to_host", {});
    c10::DataPtr memory(shared, c10::kCPU);
    c10::Storage storage(c10::Storage::use_byte_size_t(), form.nbytes(), std::move(memory), nullptr, false);
    data.host = tensor_over(std::move(storage), form.dtype, form.sizes, form.strides, 0);
  }
  return data.host;
}

graph::Value LazyEngine::borrow(const at::Tensor& dense, c10::DeviceIndex device) {
  TORCH_INTERNAL_ASSERT(dense.is_non_overlapping_and_dense(), "borrow needs a dense tensor");
  if (!session_.client().shares_memory() || dense.nbytes() == 0 || !is_aligned(dense.const_data_ptr())) return {};
  const graph::TypePtr form = form_of(dense);
  const void* data = dense.const_data_ptr();
  auto memory = std::make_shared<c10::DataPtr>(dense.storage().set_data_ptr(c10::DataPtr(nullptr, c10::kCPU)));
  auto buffer =
      session_.client().buffer_from_host(data, buffer_type(*form), pjrt::HostBufferSemantics::kZeroCopyImmutable,
                                         static_cast<size_t>(device), [memory]() mutable { memory.reset(); });
  return {leaf_of(form, std::move(buffer), /*borrowed=*/true), 0};
}

graph::Value LazyEngine::lend(const at::Tensor& dense, c10::DeviceIndex device) {
  pjrt::Client& client = session_.client();
  if (!client.shares_memory()) return upload(dense, device, /*owned=*/false);
  const graph::TypePtr form = form_of(dense);
  auto buffer =
      client.buffer_of_constant(dense.const_data_ptr(), buffer_type(*form), static_cast<size_t>(device), [dense] {});
  return {leaf_of(form, std::move(buffer), /*borrowed=*/true), 0};
}

void LazyEngine::raise_failed(const graph::Value& leaf) {
  if (const ChecksPtr& checks = data_of(*leaf.node).checks) checks->raise();
  session_.assertions.raise_lost();
}

at::Tensor LazyEngine::host_view(const graph::Value& leaf, size_t rank) {
  check_process();
  at::Tensor view;
  session_.without_gil([&] {
    const pjrt::Buffer& buffer = *data_of(*leaf.node).buffer;
    session_.await(rank == 0 ? buffer : buffer.replica(rank));
    raise_failed(leaf);
    view = host_tensor(*leaf.node, rank);
  });
  return view;
}

bool LazyEngine::is_same_on_all_ranks(const graph::Value& leaf) {
  const DeviceData& data = data_of(*leaf.node);
  if (!data.replication) return true;
  if (!is_promised(data.replication)) return false;
  const at::Tensor first = host_view(leaf);
  for (size_t rank = 1; rank < session_.client().replicas(); ++rank) {
    const at::Tensor other = host_view(leaf, rank);
    if (std::memcmp(first.const_data_ptr(), other.const_data_ptr(), first.nbytes()) != 0) return false;
  }
  return true;
}

at::Tensor LazyEngine::host_tensor(const graph::Node& leaf, size_t rank) {
  const graph::TensorType& form = *leaf.leaf_type;
  const auto options = at::TensorOptions(c10::kCPU).dtype(form.dtype);
  std::shared_ptr<pjrt::Buffer> buffer = data_of(leaf).buffer;
  const pjrt::Buffer& own = rank == 0 ? *buffer : buffer->replica(rank);
  RECORD_FUNCTION("pjrt::copy_to_host", {});
  if (void* data = form.numel() > 0 ? const_cast<void*>(own.host_pointer()) : nullptr) {
    return at::from_blob(data, form.sizes, form.strides, [buffer](void*) {}, options);
  }
  at::Tensor copy = at::empty_strided(form.sizes, form.strides, options);
  if (form.numel() > 0) own.copy_to_host(copy.mutable_data_ptr(), copy.nbytes());
  return copy;
}

void LazyEngine::read(const graph::Value& leaf, int64_t offset, int64_t nbytes, void* to) {
  check_process();
  std::shared_ptr<pjrt::Buffer> buffer = data_of(*leaf.node).buffer;
  const bool is_sound = !data_of(*leaf.node).checks && !session_.assertions.any();
  const auto copy = [&] {
    RECORD_FUNCTION("pjrt::copy_to_host", {});
    buffer->copy_raw_to_host(to, static_cast<size_t>(offset), static_cast<size_t>(nbytes));
  };
  if (is_sound && buffer->is_seen() && buffer->host_pointer()) return copy();  // nothing to wait for
  session_.without_gil([&] {
    session_.await(*buffer);
    raise_failed(leaf);
    copy();
  });
}

}  // namespace tpjrt::engine
