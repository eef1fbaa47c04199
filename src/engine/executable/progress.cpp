// The progress line, written by its own thread, and the report afterwards. Compiles on another thread while the caller
// waits.
#include "engine/executable/progress.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "device/services/python_hooks.h"
#include "engine/executable/background.h"

namespace tpjrt::engine {

namespace {

// Returns the seconds after which a compile is reported; 0: never.
double delay() {
  static const double seconds = [] {
    const char* value = std::getenv("TORCH_PJRT_COMPILE_LOG_SECONDS");
    return value && *value ? std::atof(value) : 1.0;
  }();
  return seconds;
}

WaitListener wait_listener = nullptr;

void show(const std::string& text) {
  // A failed write to the terminal is ignored.
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

}  // namespace

struct CompileProgress::Line {
  explicit Line(size_t ops) : ops(ops), thread([this] { run(); }) {}
  ~Line() {
    {
      std::lock_guard guard(lock);
      done = true;
    }
    ended.notify_one();
    thread.join();
  }

  void run() {
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock guard(lock);
    auto wait = std::chrono::duration<double>(delay());
    bool shown = false;
    while (!ended.wait_for(guard, wait, [this] { return done; })) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      show("\r\033[Ktorch_pjrt: compiling a graph of " + std::to_string(ops) + " ops, " +
           std::to_string(static_cast<int>(spent.count())) + " s");
      shown = true;
      wait = std::chrono::seconds(1);
    }
    if (shown) show("\r\033[K");
  }

  const size_t ops;
  std::mutex lock;
  std::condition_variable ended;
  bool done = false;
  std::thread thread;
};

CompileProgress::CompileProgress(size_t ops) {
  if (delay() > 0 && ::isatty(STDERR_FILENO)) line_ = std::make_unique<Line>(ops);
}

CompileProgress::~CompileProgress() = default;

void install_wait_listener(WaitListener listener) { wait_listener = listener; }

void report(const Wait& wait) {
  if (!wait_listener || delay() <= 0 || wait.seconds < delay()) return;
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%.1f", wait.seconds);
  std::string line = "waited " + std::string(seconds.data()) + " s for a graph of " + std::to_string(wait.ops) +
                     (wait.ops == 1 ? " op" : " ops");
  const device::Location location = device::user_location();
  if (!location.file.empty()) {
    line += " (" + location.file.substr(location.file.rfind('/') + 1) + ":" + std::to_string(location.line) + ")";
  }
  wait_listener(line);
}

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
