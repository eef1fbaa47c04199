// A device of a client, as it describes itself.
//
// A plain record, filled in once when the client is made. `handle` belongs to the client and lives as long as it.
#pragma once

#include <map>
#include <string>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

struct Device {
  PJRT_Device* handle = nullptr;
  int id = 0;                  // unique among all devices of the platform, other hosts' included
  int process = 0;             // whose it is (Node::id)
  bool is_ours = true;         // may this process use it?
  int local_hardware_id = -1;  // the platform's own number, such as CUDA's; -1: none
  std::string kind;            // "cpu", "NVIDIA H100 80GB HBM3"
  std::string debug_string;
  std::map<std::string, std::string> attributes;  // plugin-specific, see pjrt::to_string(PJRT_NamedValue)
};

// Asks the plugin. What a plugin does not implement keeps its default.
Device describe(const Api& api, PJRT_Device* handle);

}  // namespace tpjrt::pjrt
