// Plugins by name, the clients that programs share, and users' kernels.
#pragma once

#include <torch_pjrt/program.h>

#include <memory>
#include <string>
#include <vector>

#include "pjrt/client.h"
#include "runner/signature.h"

namespace tpjrt::runner {

// Returns the path of a plugin's shared library. Throws torch_pjrt::Error with the searched places.
std::string find_plugin(const std::string& name);
// Returns the client of a plugin and a set of options, which lives as long as the process.
std::shared_ptr<pjrt::Client> client_for(const torch_pjrt::Options& options);

// Registers the handlers that a file needs. `folders`: searched for libraries, in addition to their original paths.
void load_kernels(pjrt::Client& client, const std::vector<KernelForm>& kernels,
                  const std::vector<std::string>& folders);

}  // namespace tpjrt::runner
