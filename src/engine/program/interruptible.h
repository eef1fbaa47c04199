// Compiles that Ctrl-C may leave.
#pragma once

#include <memory>
#include <string>

#include "pjrt/client.h"

namespace tpjrt::engine {

// client->compile(text, options) on a thread of its own. The caller waits as pjrt::Event::await does, wait hook
// included. If the hook throws, the compile goes on to its end, as no plugin can stop it; who asks for the same one again
// gets that. A process that ends meanwhile ends at once, without static destructors, which would take the compiler apart
// under that thread.
std::shared_ptr<pjrt::Executable> compile_interruptibly(std::shared_ptr<pjrt::Client> client, std::string text,
                                                        pjrt::CompileOptions options);

}  // namespace tpjrt::engine
