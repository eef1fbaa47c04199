// Creates clients, and creates buffers and executables on them. Queries a device's properties.
#include "pjrt/client.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "pjrt/api/event.h"
#include "pjrt/buffer.h"
#include "pjrt/executable.h"
#include "pjrt/large_memory.h"

namespace tpjrt::pjrt {

Device describe(const Api& api, PJRT_Device* handle) {
  Device device;
  device.handle = handle;

  TPJRT_ARGS(PJRT_Device_GetDescription, description);
  description.device = handle;
  TPJRT_CALL(api, PJRT_Device_GetDescription, description);
  PJRT_DeviceDescription* described = description.device_description;

  TPJRT_ARGS(PJRT_DeviceDescription_Id, id);
  id.device_description = described;
  TPJRT_CALL(api, PJRT_DeviceDescription_Id, id);
  device.id = id.id;

  TPJRT_ARGS(PJRT_DeviceDescription_ProcessIndex, process);
  process.device_description = described;
  api.call_noexcept(&PJRT_Api::PJRT_DeviceDescription_ProcessIndex, process);
  device.process = process.process_index;

  // The rest is informative: a plugin without it is still usable.
  TPJRT_ARGS(PJRT_Device_LocalHardwareId, local);
  local.device = handle;
  local.local_hardware_id = -1;
  api.call_noexcept(&PJRT_Api::PJRT_Device_LocalHardwareId, local);
  device.local_hardware_id = local.local_hardware_id;

  TPJRT_ARGS(PJRT_DeviceDescription_Kind, kind);
  kind.device_description = described;
  api.call_noexcept(&PJRT_Api::PJRT_DeviceDescription_Kind, kind);
  if (kind.device_kind != nullptr) device.kind.assign(kind.device_kind, kind.device_kind_size);

  TPJRT_ARGS(PJRT_DeviceDescription_DebugString, text);
  text.device_description = described;
  api.call_noexcept(&PJRT_Api::PJRT_DeviceDescription_DebugString, text);
  if (text.debug_string != nullptr) device.debug_string.assign(text.debug_string, text.debug_string_size);

  TPJRT_ARGS(PJRT_DeviceDescription_Attributes, attributes);
  attributes.device_description = described;
  api.call_noexcept(&PJRT_Api::PJRT_DeviceDescription_Attributes, attributes);
  for (size_t i = 0; i < attributes.num_attributes; ++i) {
    const PJRT_NamedValue& value = attributes.attributes[i];
    device.attributes.emplace(std::string(value.name, value.name_size), to_string(value));
  }
  return device;
}

namespace {

PJRT_NamedValue named_value(const std::string& name, const Options::mapped_type& option) {
  PJRT_NamedValue value{};
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  value.name = name.data();
  value.name_size = name.size();
  value.value_size = 1;
  if (const auto* text = std::get_if<std::string>(&option)) {
    value.type = PJRT_NamedValue_kString;
    value.string_value = text->data();
    value.value_size = text->size();
  } else if (const auto* flag = std::get_if<bool>(&option)) {
    value.type = PJRT_NamedValue_kBool;
    value.bool_value = *flag;
  } else if (const auto* integer = std::get_if<int64_t>(&option)) {
    value.type = PJRT_NamedValue_kInt64;
    value.int64_value = *integer;
  } else {
    value.type = PJRT_NamedValue_kFloat;
    value.float_value = static_cast<float>(std::get<double>(option));
  }
  return value;
}

// Returns the option of GPU plugins for the device that a process uses.
PJRT_NamedValue visible_devices(const int64_t& number) {
  PJRT_NamedValue value{};
  const std::string_view name = "visible_devices";
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  value.name = name.data();
  value.name_size = name.size();
  value.type = PJRT_NamedValue_kInt64List;
  value.int64_array_value = &number;
  value.value_size = 1;
  return value;
}

// Validates an array, because plugins abort at unknown element types and read through any pointer.
void check_array(const char* function, const void* data, const BufferType& type) {
  const auto refuse = [&](const std::string& message) { throw Error(ErrorCode::kInvalidArgument, function, message); };
  if (byte_width(type.element_type) == 0) {
    refuse("element type " + std::to_string(type.element_type) + " has no size in host memory");
  }
  for (int64_t dim : type.dims) {
    if (dim < 0) refuse("a dimension of size " + std::to_string(dim));
  }
  if (data == nullptr && type.size_in_bytes != 0) refuse("null data for an array that is not empty");
}

PJRT_HostBufferSemantics to_pjrt(HostBufferSemantics semantics) {
  switch (semantics) {
    case HostBufferSemantics::kZeroCopyImmutable: return PJRT_HostBufferSemantics_kImmutableZeroCopy;
    case HostBufferSemantics::kZeroCopyMutable: return PJRT_HostBufferSemantics_kMutableZeroCopy;
    case HostBufferSemantics::kCopy: break;
  }
  return PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
}

}  // namespace

std::shared_ptr<Client> Client::create(const Api& api, const Options& options, size_t replicas) {
  return create(api, options, nullptr, replicas);
}

std::shared_ptr<Client> Client::create(const Api& api, Options options, const Node& node) {
  options["node_id"] = int64_t{node.id};
  options["num_nodes"] = int64_t{node.count};
  return create(api, options, &node, 1);
}

std::shared_ptr<Client> Client::create(const Api& api, const Options& options, const Node* node, size_t replicas) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, option] : options) values.push_back(named_value(name, option));
  if (node != nullptr) values.push_back(visible_devices(node->visible_device));
  watch_forks();
  TPJRT_ARGS(PJRT_Client_Create, args);
  args.create_options = values.data();
  args.num_options = values.size();

  std::shared_ptr<Client> client(new Client(api));
  if (node != nullptr) {
    client->store_ = node->store;
    give_callbacks(args, *node->store);
  }
  TPJRT_CALL(api, PJRT_Client_Create, args);
  client->handle_ = args.client;

  TPJRT_ARGS(PJRT_Client_PlatformName, name);
  name.client = args.client;
  TPJRT_CALL(api, PJRT_Client_PlatformName, name);
  client->platform_name_.assign(name.platform_name, name.platform_name_size);
  if (client->platform_name_ == "cpu") keep_large_memory(api.address());

  TPJRT_ARGS(PJRT_Client_PlatformVersion, version);
  version.client = args.client;
  TPJRT_CALL(api, PJRT_Client_PlatformVersion, version);
  client->platform_version_.assign(version.platform_version, version.platform_version_size);

  TPJRT_ARGS(PJRT_Client_AddressableDevices, devices);
  devices.client = args.client;
  TPJRT_CALL(api, PJRT_Client_AddressableDevices, devices);
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    client->devices_.push_back(describe(api, devices.addressable_devices[i]));
  }
  if (node != nullptr) client->find_devices(*node);
  client->memory_ = std::make_unique<MemoryUse[]>(client->devices_.size());
  client->is_host_memory_ = client->ask_is_host_memory();
  client->replicas_ = replicas;
  return client;
}

void Client::find_devices(const Node& node) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kFailedPrecondition, "PJRT_Client_Create",
                "process " + std::to_string(node.id) + " of " + std::to_string(node.count) + " " + what);
  };
  if (devices_.size() != 1) {
    refuse("has " + std::to_string(devices_.size()) + " devices, and takes part with one");
  }
  TPJRT_ARGS(PJRT_Client_Devices, all);
  all.client = handle_;
  TPJRT_CALL(api_, PJRT_Client_Devices, all);
  std::vector<Device> devices;
  for (size_t i = 0; i < all.num_devices; ++i) devices.push_back(describe(api_, all.devices[i]));
  std::sort(devices.begin(), devices.end(), [](const Device& a, const Device& b) { return a.process < b.process; });
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].process != static_cast<int>(i)) refuse("sees devices that are not one a process");
    ids_by_process_.push_back(devices[i].id);
    devices[i].is_ours = devices[i].id == devices_.front().id;
  }
  if (devices.size() != static_cast<size_t>(node.count)) {
    refuse("sees " + std::to_string(devices.size()) + " devices");
  }
  const auto first = devices.begin() + node.first_on_host;
  devices_.assign(first, first + node.on_host);
}

size_t Client::own_device() const {
  const auto own = std::find_if(devices_.begin(), devices_.end(), [](const Device& device) { return device.is_ours; });
  return static_cast<size_t>(own - devices_.begin());
}

Client::~Client() {
  if (handle_ == nullptr) return;
  TPJRT_ARGS(PJRT_Client_Destroy, args);
  args.client = handle_;
  api_.call_noexcept(&PJRT_Api::PJRT_Client_Destroy, args);
}

std::map<std::string, int64_t> Client::memory_stats(size_t device_index) const {
  return device_memory_stats(api_, devices_.at(device_index).handle);
}

const Device& Client::own(size_t device_index) const {
  const Device& device = devices_.at(device_index);
  if (device.is_ours) return device;
  throw Error(ErrorCode::kInvalidArgument, "device " + std::to_string(device_index),
              "it is process " + std::to_string(device.process) + "'s, and this process has device " +
                  std::to_string(own_device()) + " alone");
}

bool Client::ask_is_host_memory() {
  const bool can_point =
      api_.has(&PJRT_Api::PJRT_Buffer_UnsafePointer) || api_.has(&PJRT_Api::PJRT_Buffer_OpaqueDeviceMemoryDataPointer);
  if (devices_.empty() || !can_point || !api_.has(&PJRT_Api::PJRT_Buffer_IsOnCpu)) return false;
  const float zero = 0;
  const auto buffer = buffer_from_host(&zero, PJRT_Buffer_Type_F32, {}, HostBufferSemantics::kCopy, own_device(), {});
  TPJRT_ARGS(PJRT_Buffer_IsOnCpu, args);
  args.buffer = buffer->handle();
  TPJRT_CALL(api_, PJRT_Buffer_IsOnCpu, args);
  return args.is_on_cpu;
}

std::shared_ptr<Buffer> Client::buffer_from_host(const void* data, PJRT_Buffer_Type type, std::span<const int64_t> dims,
                                                 HostBufferSemantics semantics, size_t device_index,
                                                 std::function<void()> release) {
  return buffer_from_host(data,
                          std::make_shared<const BufferType>(type, std::vector<int64_t>(dims.begin(), dims.end())),
                          semantics, device_index, std::move(release));
}

std::pair<PJRT_Buffer*, Event> Client::hand_over(const void* data, const BufferType& type, size_t device_index,
                                                 HostBufferSemantics semantics) const {
  // Not all runtimes accept a null pointer; an empty array has nothing to read.
  alignas(kZeroCopyAlignment) static char nothing[kZeroCopyAlignment];
  TPJRT_ARGS(PJRT_Client_BufferFromHostBuffer, args);
  args.client = handle_;
  args.data = type.size_in_bytes == 0 ? nothing : data;
  args.type = type.element_type;
  args.dims = type.dims.data();
  args.num_dims = type.dims.size();
  args.host_buffer_semantics = to_pjrt(semantics);
  check_array("PJRT_Client_BufferFromHostBuffer", data, type);
  args.device = own(device_index).handle;
  TPJRT_CALL(api_, PJRT_Client_BufferFromHostBuffer, args);
  handed_over_.fetch_add(1, std::memory_order_relaxed);
  return {args.buffer, Event(api_, args.done_with_host_buffer)};
}

std::shared_ptr<Buffer> Client::buffer_from_host(const void* data, std::shared_ptr<const BufferType> type,
                                                 HostBufferSemantics semantics, size_t device_index,
                                                 std::function<void()> release) {
  try {
    if (replicas_ > 1) semantics = HostBufferSemantics::kCopy;
    const auto [handle, done] = hand_over(data, *type, device_index, semantics);
    std::vector<std::shared_ptr<Buffer>> others;
    for (size_t i = 1; i < replicas_; ++i) {
      others.push_back(
          std::make_shared<Buffer>(shared_from_this(), hand_over(data, *type, i, semantics).first, type, i));
    }
    auto buffer = std::make_shared<Buffer>(shared_from_this(), handle, std::move(type), device_index);
    if (!others.empty()) buffer->set_replicas(std::move(others));
    if (!release) return buffer;
    if (semantics == HostBufferSemantics::kCopy) {
      std::exchange(release, nullptr)();
    } else {
      done.on_ready(std::move(release));
      release = nullptr;  // the event owns it now
    }
    return buffer;
  } catch (...) {
    if (release) release();
    throw;
  }
}

std::shared_ptr<Buffer> Client::buffer_of_constant(const void* data, std::shared_ptr<const BufferType> type,
                                                   size_t device_index, std::function<void()> release) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(data) % kZeroCopyAlignment == 0;
  const bool in_place = shares_memory() && is_aligned && type->size_in_bytes > 0;
  return buffer_from_host(data, std::move(type),
                          in_place ? HostBufferSemantics::kZeroCopyImmutable : HostBufferSemantics::kCopy, device_index,
                          std::move(release));
}

std::shared_ptr<Buffer> Client::buffer_over_host(void* data, std::shared_ptr<const BufferType> type,
                                                 size_t device_index, std::function<void()> release) {
  return std::make_shared<Buffer>(shared_from_this(), data, std::move(type), device_index, std::move(release));
}

std::shared_ptr<Buffer> Client::view_of_device_memory(const void* data, std::shared_ptr<const BufferType> type,
                                                      size_t device_index, StreamHandle stream) {
  if (type->size_in_bytes == 0) {
    return buffer_from_host(nullptr, std::move(type), HostBufferSemantics::kCopy, device_index, {});
  }
  RowMajorLayout layout(type->dims.size());
  TPJRT_ARGS(PJRT_Client_CreateViewOfDeviceBuffer, args);
  args.client = handle_;
  args.device_buffer_ptr = const_cast<void*>(data);
  args.dims = type->dims.data();
  args.num_dims = type->dims.size();
  args.element_type = type->element_type;
  args.layout = layout.get();
  args.device = devices_.at(device_index).handle;
  args.stream = stream;
  args.on_delete_callback = [](void*, void*) {};  // the CPU plugin calls it even if it is null
  check_array("PJRT_Client_CreateViewOfDeviceBuffer", data, *type);
  TPJRT_CALL(api_, PJRT_Client_CreateViewOfDeviceBuffer, args);
  auto buffer = std::make_shared<Buffer>(shared_from_this(), args.buffer, std::move(type), device_index);
  buffer->set_counted(false);  // others own the memory
  return buffer;
}

std::vector<int> Client::device_ids(const CompileOptions& options) const {
  std::vector<int> ids;
  for (const int process : options.processes) ids.push_back(ids_by_process_.at(static_cast<size_t>(process)));
  if (!ids.empty()) return ids;
  for (int i = 0; i < options.replicas; ++i) {
    ids.push_back(own(static_cast<size_t>(options.device_ordinal + i)).id);
  }
  return ids;
}

std::string Client::serialized_options(const CompileOptions& options) const {
  CompileOptions known = options;
  {
    std::lock_guard guard(unknown_lock_);
    for (const std::string& name : unknown_hints_) {
      if (options.hints.contains(name)) known.overrides.erase(name);
    }
  }
  return serialize(known, device_ids(options), spans_processes());
}

void Client::with_options(const CompileOptions& options, const std::function<void(const std::string&)>& call) {
  for (;;) {
    const std::string serialized = serialized_options(options);
    try {
      return call(serialized);
    } catch (const Error& error) {  // "No such compile option: 'xla_…'", one at a time
      {
        std::lock_guard guard(unknown_lock_);
        for (const std::string& name : options.hints) {
          if (std::string_view(error.what()).find("option: '" + name + "'") == std::string_view::npos) continue;
          unknown_hints_.insert(name);
        }
      }
      if (serialized_options(options) == serialized) throw;  // otherwise this or another thread has learnt it
    }
  }
}

std::shared_ptr<Executable> Client::compile(const std::string& stablehlo) {
  return compile(stablehlo, {.device_ordinal = static_cast<int>(own_device())});
}

std::shared_ptr<Executable> Client::compile(const std::string& stablehlo, const CompileOptions& options) {
  const std::string format = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(stablehlo.data());  // only read: the field is an output of other functions
  program.code_size = stablehlo.size();
  program.format = format.data();
  program.format_size = format.size();

  TPJRT_ARGS(PJRT_Client_Compile, args);
  args.client = handle_;
  args.program = &program;
  with_options(options, [&](const std::string& serialized) {
    args.compile_options = serialized.data();
    args.compile_options_size = serialized.size();
    TPJRT_CALL(api_, PJRT_Client_Compile, args);
  });
  return std::make_shared<Executable>(shared_from_this(), args.executable, options);
}

std::shared_ptr<Executable> Client::deserialize(const std::string& serialized, const CompileOptions& options) {
  TPJRT_ARGS(PJRT_Executable_DeserializeAndLoad, args);
  args.client = handle_;
  args.serialized_executable = serialized.data();
  args.serialized_executable_size = serialized.size();
  with_options(options, [&](const std::string& overridden) {
    args.overridden_serialized_compile_options = overridden.data();
    args.overridden_serialized_compile_options_size = overridden.size();
    TPJRT_CALL(api_, PJRT_Executable_DeserializeAndLoad, args);
  });
  return std::make_shared<Executable>(shared_from_this(), args.loaded_executable, options);
}

}  // namespace tpjrt::pjrt
