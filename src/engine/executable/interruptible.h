// Compiles that Ctrl-C can abandon.
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

// Waits like pjrt::Event::await, wait hook included. If the hook throws, the exception passes on and the future stays
// valid. Returns false once `enough` returns true; it is called as often as the hook.
template <class T>
bool await_with_hook(const std::shared_future<T>& future, const std::function<bool()>& enough) {
  const pjrt::WaitHook hook = pjrt::wait_hook();
  while (future.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    if (hook) hook();
    if (enough()) return false;
  }
  return true;
}

// Runs client->compile(text, options) on its own thread. The caller waits like pjrt::Event::await, wait hook included.
// If the hook throws, the compile runs to its end, because no plugin can stop it, and the next request for the same
// program gets its result. A process that exits meanwhile skips static destructors, which would destroy the compiler
// under that thread. Returns null once `enough`, which is called every 50 ms, returns true; the compile is abandoned
// likewise.
std::shared_ptr<pjrt::Executable> compile_interruptibly(std::shared_ptr<pjrt::Client> client, std::string text,
                                                        pjrt::CompileOptions options,
                                                        const std::function<bool()>& enough);

}  // namespace tpjrt::engine
