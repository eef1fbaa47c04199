// The properties of a client's device.
//
// A plain record, filled once when the client is created. `handle` belongs to the client and lives as long as it.
#pragma once

#include <map>
#include <string>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

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

}  // namespace tpjrt::pjrt
