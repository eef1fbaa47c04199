// Compiles that Ctrl-C may leave.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "pjrt/api/event.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

template <class T>
bool is_done(const std::shared_future<T>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Waits as pjrt::Event::await does, wait hook included; throws what the hook throws, and the future stays as it is. False once
// `enough` is true, which is asked as often as the hook.
template <class T>
bool await_with_hook(const std::shared_future<T>& future, const std::function<bool()>& enough) {
  const pjrt::WaitHook hook = pjrt::wait_hook();
  while (future.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    if (hook) hook();
    if (enough()) return false;
  }
  return true;
}

// client->compile(text, options) on a thread of its own. The caller waits as pjrt::Event::await does, wait hook
// included. If the hook throws, the compile goes on to its end, as no plugin can stop it; who asks for the same one again
// gets that. A process that ends meanwhile ends at once, without static destructors, which would take the compiler apart
// under that thread. Null, and the compile left likewise, once `enough` is true: it is asked each 50 ms.
std::shared_ptr<pjrt::Executable> compile_interruptibly(std::shared_ptr<pjrt::Client> client, std::string text,
                                                        pjrt::CompileOptions options,
                                                        const std::function<bool()>& enough);

}  // namespace tpjrt::engine
