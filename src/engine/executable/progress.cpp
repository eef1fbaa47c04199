// The progress line, written by its own thread, and the report afterwards.
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

}  // namespace tpjrt::engine
