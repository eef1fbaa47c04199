// Queries a device's properties.
#include "pjrt/device.h"

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

}  // namespace tpjrt::pjrt
