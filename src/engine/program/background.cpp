// The queue of compiles, and the threads that serve it.
#include "engine/program/background.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/program/interruptible.h"
#include "engine/program/unfinished.h"

namespace tpjrt::engine {

struct BackgroundCompile::Task {
  std::function<CompiledText()> work;
  std::promise<CompiledText> promise;
  std::shared_future<CompiledText> compiled{promise.get_future()};
  std::atomic<bool> taken{false};

  // By the first who asks.
  bool take() { return !taken.exchange(true); }
  void run() {
    try {
      promise.set_value(work());
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
    work = nullptr;
  }
};

namespace {

constexpr int kLowestPriority = 19;

int most_threads() {
  static const int count = [] {
    const char* value = std::getenv("TORCH_PJRT_COMPILE_THREADS");
    return value && *value ? std::max(1, std::atoi(value)) : 1;
  }();
  return count;
}

// Leaked, as its threads outlive static destructors. A forked child has none of them, and never comes here.
template <class Task>
class Queue {
 public:
  static Queue& instance() {
    static auto* queue = new Queue;
    return *queue;
  }

  void push(std::shared_ptr<Task> task) {
    const std::lock_guard guard(lock_);
    tasks_.push_back(std::move(task));
    if (idle_ == 0 && threads_ < most_threads()) {
      if (threads_++ == 0) end_despite_unfinished();
      std::thread([this] { serve(); }).detach();
    }
    pushed_.notify_one();
  }

 private:
  [[noreturn]] void serve() {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)),
                kLowestPriority);  // where it fails, it runs as others do
    while (true) {
      std::shared_ptr<Task> task = next();
      if (!task->take()) continue;
      {
        const Unfinished unfinished;
        task->run();
      }
      std::call_once(compiled_once_, end_despite_unfinished);
    }
  }

  std::shared_ptr<Task> next() {
    std::unique_lock guard(lock_);
    ++idle_;
    pushed_.wait(guard, [this] { return !tasks_.empty(); });
    --idle_;
    std::shared_ptr<Task> task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  std::once_flag compiled_once_;
  std::mutex lock_;
  std::condition_variable pushed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  int threads_ = 0, idle_ = 0;
};

}  // namespace

BackgroundCompile::BackgroundCompile(std::function<CompiledText()> work) : task_(std::make_shared<Task>()) {
  task_->work = std::move(work);
  Queue<Task>::instance().push(task_);
}

bool BackgroundCompile::is_done() const { return engine::is_done(task_->compiled); }

CompiledText BackgroundCompile::result(const std::function<CompiledText()>& instead) {
  if (task_->take()) {
    task_->work = instead;
    task_->run();
  }
  await_with_hook(task_->compiled);
  return task_->compiled.get();
}

}  // namespace tpjrt::engine
