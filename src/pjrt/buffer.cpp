// Waits for buffers and reads them; sizes and names of PJRT element types.
#include "pjrt/buffer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "pjrt/api/event.h"
#include "pjrt/client.h"
#include "pjrt/memory.h"

namespace tpjrt::pjrt {

namespace {

size_t dense_size(PJRT_Buffer_Type element_type, const std::vector<int64_t>& dims) {
  size_t size = byte_width(element_type);
  for (int64_t dim : dims) size *= static_cast<size_t>(dim);
  return size;
}

Event ready_event(const Api& api, PJRT_Buffer* buffer) {
  TPJRT_ARGS(PJRT_Buffer_ReadyEvent, args);
  args.buffer = buffer;
  TPJRT_CALL(api, PJRT_Buffer_ReadyEvent, args);
  return Event(api, args.event);
}

}  // namespace

BufferType::BufferType(PJRT_Buffer_Type element_type, std::vector<int64_t> dims)
    : element_type(element_type), dims(std::move(dims)), size_in_bytes(dense_size(element_type, this->dims)) {}

RowMajorLayout::RowMajorLayout(size_t rank) : minor_to_major_(rank) {
  std::iota(minor_to_major_.rbegin(), minor_to_major_.rend(), 0);
  layout_.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout_.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout_.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout_.tiled.minor_to_major = minor_to_major_.data();
  layout_.tiled.minor_to_major_size = rank;
}

Buffer::Buffer(std::shared_ptr<const Client> client, PJRT_Buffer* handle, std::shared_ptr<const BufferType> type,
               size_t device_index)
    : client_(std::move(client)), handle_(handle), type_(std::move(type)), device_index_(device_index) {
  set_counted(true);
}

Buffer::Buffer(std::shared_ptr<const Client> client, void* data, std::shared_ptr<const BufferType> type,
               size_t device_index, std::function<void()> release)
    : client_(std::move(client)),
      handle_(nullptr),
      type_(std::move(type)),
      device_index_(device_index),
      ready_(true),
      data_(data),
      release_(std::move(release)) {
  set_counted(true);
}

Buffer::~Buffer() {
  set_counted(false);
  PJRT_Buffer* handle = handle_.load(std::memory_order_acquire);
  if (!handle) {
    if (release_) release_();
    return;
  }
  destroy(handle);
}

void Buffer::destroy(PJRT_Buffer* handle) const {
  TPJRT_ARGS(PJRT_Buffer_Destroy, args);
  args.buffer = handle;
  api().call_noexcept(&PJRT_Api::PJRT_Buffer_Destroy, args);
}

// The second caller finds it done. There is no lock here, because a forked child could find it held forever by its
// parent.
PJRT_Buffer* Buffer::hand_over() const {
  auto [handle, done] = client_->hand_over(data_.load(std::memory_order_acquire), *type_, device_index_);
  PJRT_Buffer* none = nullptr;
  if (!handle_.compare_exchange_strong(none, handle, std::memory_order_acq_rel)) {
    destroy(handle);
    return none;
  }
  if (release_) done.on_ready(std::move(release_));
  return handle;
}

const Api& Buffer::api() const { return client_->api(); }

void Buffer::set_counted(bool counted) const {
  for (const auto& other : others_) other->set_counted(counted);
  if (counted_.exchange(counted, std::memory_order_relaxed) == counted) return;
  if (!counted && is_handed_over()) data_.store(nullptr, std::memory_order_release);  // it may be deleted soon
  MemoryUse& memory = client_->memory(device_index_);
  if (counted) {
    memory.add(size_in_bytes());
  } else {
    memory.remove(size_in_bytes());
  }
}

void Buffer::await() const {
  if (ready_.load(std::memory_order_acquire)) return;
  ready_event(api(), handle()).await();
  for (const auto& other : others_) other->await();
  ready_.store(true, std::memory_order_release);
}

bool Buffer::is_ready() const {
  if (ready_.load(std::memory_order_acquire)) return true;
  return ready_event(api(), handle()).is_ready() &&
         std::all_of(others_.begin(), others_.end(), [](const auto& other) { return other->is_ready(); });
}

const Buffer& Buffer::replica(size_t i) const {
  if (i == 0) return *this;
  if (i > others_.size()) {
    throw Error(ErrorCode::kInvalidArgument, "PJRT_LoadedExecutable_Execute",
                "a buffer on one device was given to a program that runs on several");
  }
  return *others_[i - 1];
}

const void* Buffer::host_pointer() const {
  if (!client_->is_host_memory()) return nullptr;
  if (const void* data = data_.load(std::memory_order_acquire)) return data;
  await();
  const void* data = ask_host_pointer();
  if (counted_.load(std::memory_order_relaxed)) data_.store(data, std::memory_order_release);
  return data;
}

const void* Buffer::ask_host_pointer() const {
  if (api().has(&PJRT_Api::PJRT_Buffer_UnsafePointer)) {
    TPJRT_ARGS(PJRT_Buffer_UnsafePointer, args);
    args.buffer = handle();
    TPJRT_CALL(api(), PJRT_Buffer_UnsafePointer, args);
    return reinterpret_cast<const void*>(args.buffer_pointer);
  }
  TPJRT_ARGS(PJRT_Buffer_OpaqueDeviceMemoryDataPointer, args);
  args.buffer = handle();
  TPJRT_CALL(api(), PJRT_Buffer_OpaqueDeviceMemoryDataPointer, args);
  return args.device_memory_ptr;
}

void* Buffer::device_pointer() const {
  if (api().has(&PJRT_Api::PJRT_Buffer_OpaqueDeviceMemoryDataPointer)) {
    TPJRT_ARGS(PJRT_Buffer_OpaqueDeviceMemoryDataPointer, args);
    args.buffer = handle();
    TPJRT_CALL(api(), PJRT_Buffer_OpaqueDeviceMemoryDataPointer, args);
    return args.device_memory_ptr;
  }
  TPJRT_ARGS(PJRT_Buffer_UnsafePointer, args);
  args.buffer = handle();
  TPJRT_CALL(api(), PJRT_Buffer_UnsafePointer, args);
  return reinterpret_cast<void*>(args.buffer_pointer);
}

void Buffer::copy_to_host(void* dst, size_t bytes) const {
  // Without a destination the C API would return the size instead.
  if (size_in_bytes() == 0) return await();
  const bool fits = bytes >= size_in_bytes();                      // otherwise the plugin reports it
  if (!is_handed_over() || (client_->is_host_memory() && fits)) {  // copied as it is, in the program's layout
    std::memcpy(dst, host_pointer(), size_in_bytes());
    return;
  }
  RowMajorLayout layout(dims().size());  // by default the copy has the device's layout, which need not be row-major

  TPJRT_ARGS(PJRT_Buffer_ToHostBuffer, args);
  args.src = handle();
  args.host_layout = layout.get();
  args.dst = dst;
  args.dst_size = bytes;
  TPJRT_CALL(api(), PJRT_Buffer_ToHostBuffer, args);
  Event(api(), args.event).await();
}

void Buffer::copy_raw_to_host(void* dst, size_t offset, size_t bytes) const {
  if (offset > size_in_bytes() || bytes > size_in_bytes() - offset) {
    throw Error(ErrorCode::kOutOfRange, "PJRT_Buffer_CopyRawToHost",
                std::to_string(bytes) + " bytes from offset " + std::to_string(offset) + " of a buffer of " +
                    std::to_string(size_in_bytes()));
  }
  if (bytes == 0) return await();
  if (const void* data = host_pointer()) {
    std::memcpy(dst, static_cast<const char*>(data) + offset, bytes);
    return;
  }
  if (api().has(&PJRT_Api::PJRT_Buffer_CopyRawToHost)) {
    try {
      TPJRT_ARGS(PJRT_Buffer_CopyRawToHost, args);
      args.buffer = handle();
      args.dst = dst;
      args.offset = static_cast<int64_t>(offset);
      args.transfer_size = static_cast<int64_t>(bytes);
      TPJRT_CALL(api(), PJRT_Buffer_CopyRawToHost, args);
      return Event(api(), args.event).await();
    } catch (const Error& error) {
      // Some plugins implement the function only to return this code.
      if (error.code != ErrorCode::kUnimplemented) throw;
    }
  }
  std::vector<char> whole(size_in_bytes());
  copy_to_host(whole.data(), whole.size());
  std::memcpy(dst, whole.data() + offset, bytes);
}

bool Buffer::is_deleted() const {
  if (!is_handed_over()) return false;
  TPJRT_ARGS(PJRT_Buffer_IsDeleted, args);
  args.buffer = handle();
  TPJRT_CALL(api(), PJRT_Buffer_IsDeleted, args);
  return args.is_deleted;
}

std::shared_ptr<Buffer> Buffer::copy_to_device(size_t device_index) const {
  TPJRT_ARGS(PJRT_Buffer_CopyToDevice, args);
  args.buffer = handle();
  args.dst_device = client_->devices().at(device_index).handle;
  TPJRT_CALL(api(), PJRT_Buffer_CopyToDevice, args);
  return std::make_shared<Buffer>(client_, args.dst_buffer, type_, device_index);
}

// Sizes and names of PJRT element types.

size_t byte_width(PJRT_Buffer_Type type) {
  switch (type) {
    case PJRT_Buffer_Type_PRED:
    case PJRT_Buffer_Type_S2:
    case PJRT_Buffer_Type_S4:
    case PJRT_Buffer_Type_S8:
    case PJRT_Buffer_Type_U2:
    case PJRT_Buffer_Type_U4:
    case PJRT_Buffer_Type_U8:
    case PJRT_Buffer_Type_F4E2M1FN:
    case PJRT_Buffer_Type_F8E3M4:
    case PJRT_Buffer_Type_F8E4M3:
    case PJRT_Buffer_Type_F8E4M3FN:
    case PJRT_Buffer_Type_F8E4M3FNUZ:
    case PJRT_Buffer_Type_F8E4M3B11FNUZ:
    case PJRT_Buffer_Type_F8E5M2:
    case PJRT_Buffer_Type_F8E5M2FNUZ:
    case PJRT_Buffer_Type_F8E8M0FNU: return 1;
    case PJRT_Buffer_Type_S16:
    case PJRT_Buffer_Type_U16:
    case PJRT_Buffer_Type_F16:
    case PJRT_Buffer_Type_BF16: return 2;
    case PJRT_Buffer_Type_S32:
    case PJRT_Buffer_Type_U32:
    case PJRT_Buffer_Type_F32: return 4;
    case PJRT_Buffer_Type_S64:
    case PJRT_Buffer_Type_U64:
    case PJRT_Buffer_Type_F64:
    case PJRT_Buffer_Type_C64: return 8;
    case PJRT_Buffer_Type_C128: return 16;
    default: return 0;
  }
}

std::string_view spelling(PJRT_Buffer_Type type) {
  switch (type) {
    case PJRT_Buffer_Type_PRED: return "pred";
    case PJRT_Buffer_Type_S2: return "s2";
    case PJRT_Buffer_Type_S4: return "s4";
    case PJRT_Buffer_Type_S8: return "s8";
    case PJRT_Buffer_Type_S16: return "s16";
    case PJRT_Buffer_Type_S32: return "s32";
    case PJRT_Buffer_Type_S64: return "s64";
    case PJRT_Buffer_Type_U2: return "u2";
    case PJRT_Buffer_Type_U4: return "u4";
    case PJRT_Buffer_Type_U8: return "u8";
    case PJRT_Buffer_Type_U16: return "u16";
    case PJRT_Buffer_Type_U32: return "u32";
    case PJRT_Buffer_Type_U64: return "u64";
    case PJRT_Buffer_Type_F4E2M1FN: return "f4e2m1fn";
    case PJRT_Buffer_Type_F8E3M4: return "f8e3m4";
    case PJRT_Buffer_Type_F8E4M3: return "f8e4m3";
    case PJRT_Buffer_Type_F8E4M3FN: return "f8e4m3fn";
    case PJRT_Buffer_Type_F8E4M3FNUZ: return "f8e4m3fnuz";
    case PJRT_Buffer_Type_F8E4M3B11FNUZ: return "f8e4m3b11fnuz";
    case PJRT_Buffer_Type_F8E5M2: return "f8e5m2";
    case PJRT_Buffer_Type_F8E5M2FNUZ: return "f8e5m2fnuz";
    case PJRT_Buffer_Type_F8E8M0FNU: return "f8e8m0fnu";
    case PJRT_Buffer_Type_F16: return "f16";
    case PJRT_Buffer_Type_BF16: return "bf16";
    case PJRT_Buffer_Type_F32: return "f32";
    case PJRT_Buffer_Type_F64: return "f64";
    case PJRT_Buffer_Type_C64: return "c64";
    case PJRT_Buffer_Type_C128: return "c128";
    case PJRT_Buffer_Type_TOKEN: return "token";
    default: return "unknown";
  }
}

}  // namespace tpjrt::pjrt
