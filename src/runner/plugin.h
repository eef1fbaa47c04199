// Plugins by name, the clients that programs share, and users' kernels.
#pragma once

#include <torch_pjrt/program.h>

#include <memory>
#include <string>
#include <vector>

#include "pjrt/client.h"
#include "runner/signature.h"

namespace tpjrt::runner {

// The path of a plugin's shared library. Throws torch_pjrt::Error, with the places that were looked at.
std::string find_plugin(const std::string& name);
// One for each plugin and set of options, for the life of the process.
std::shared_ptr<pjrt::Client> client_for(const torch_pjrt::Options& options);

// Registers the handlers that a file needs. `folders`: where libraries are looked for, besides where they were.
void load_kernels(pjrt::Client& client, const std::vector<KernelForm>& kernels,
                  const std::vector<std::string>& folders);

}  // namespace tpjrt::runner
