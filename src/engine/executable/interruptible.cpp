// Compiles on another thread while the caller waits.
#include "engine/executable/interruptible.h"

#include <mutex>
#include <thread>
#include <utility>

#include "engine/executable/unfinished.h"

namespace tpjrt::engine {

namespace {

using Result = std::shared_ptr<pjrt::Executable>;

struct Compile {
  std::shared_ptr<pjrt::Client> client;
  std::string text;
  pjrt::CompileOptions options;
  std::shared_future<Result> result;

  bool is_for(const pjrt::Client& other, const std::string& other_text,
              const pjrt::CompileOptions& other_options) const {
    return client.get() == &other && text == other_text && options == other_options;
  }
};

// The last abandoned compile. Both are leaked, because threads outlive static destructors.
std::mutex& lock() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::shared_ptr<Compile>& left_behind() {
  static auto* compile = new std::shared_ptr<Compile>;
  return *compile;
}

std::shared_ptr<Compile> start(std::shared_ptr<pjrt::Client> client, std::string text, pjrt::CompileOptions options) {
  auto compile = std::make_shared<Compile>();
  compile->client = std::move(client);
  compile->text = std::move(text);
  compile->options = std::move(options);
  std::promise<Result> promise;
  compile->result = promise.get_future().share();
  std::thread([compile, promise = std::move(promise), unfinished = std::make_unique<Unfinished>()]() mutable {
    try {
      promise.set_value(compile->client->compile(compile->text, compile->options));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  return compile;
}

}  // namespace

std::shared_ptr<pjrt::Executable> compile_interruptibly(std::shared_ptr<pjrt::Client> client, std::string text,
                                                        pjrt::CompileOptions options,
                                                        const std::function<bool()>& enough) {
  if (pjrt::wait_hook() == nullptr) {
    const Unfinished unfinished;
    return client->compile(text, options);
  }
  std::shared_ptr<Compile> compile;
  {
    const std::lock_guard guard(lock());
    std::shared_ptr<Compile>& left = left_behind();
    if (left && left->is_for(*client, text, options)) compile = std::move(left);
    if (left && is_done(left->result)) left.reset();
  }
  if (!compile) compile = start(std::move(client), std::move(text), std::move(options));
  const auto leave = [&] {
    end_despite_unfinished();
    const std::lock_guard guard(lock());
    left_behind() = compile;
  };
  bool is_done = false;
  try {
    is_done = await_with_hook(compile->result, enough);
  } catch (...) {
    leave();
    throw;
  }
  if (is_done) return compile->result.get();
  leave();
  return nullptr;
}

}  // namespace tpjrt::engine
