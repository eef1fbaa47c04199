// XLA's CompileOptionsProto, the smallest that says what we mean, in protobuf's wire format.
//
// Written by hand: the message is stable and four fields of it do not pay for a protobuf dependency.
#pragma once

#include <string>

#include "pjrt/executable.h"

namespace tpjrt::pjrt {

// One replica and one partition, assigned to the device with this id (Device::id), and the overrides.
std::string serialize(const CompileOptions& options, int device_id);

}  // namespace tpjrt::pjrt
