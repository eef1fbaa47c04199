// A minimal CompileOptionsProto of XLA, in protobuf's wire format.
//
// Written by hand: the message is stable, and four fields don't justify a protobuf dependency.
#pragma once

#include <span>
#include <string>

#include "pjrt/executable.h"

namespace tpjrt::pjrt {

// Serializes one partition, a replica for each of the devices with these ids (Device::id), and the overrides.
std::string serialize(const CompileOptions& options, std::span<const int> device_ids, bool spans_processes = false);

}  // namespace tpjrt::pjrt
