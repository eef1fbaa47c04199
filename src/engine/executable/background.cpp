// The queue of compiles and the threads that run them.
#include "engine/executable/background.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/executable/interruptible.h"
#include "engine/executable/unfinished.h"

namespace tpjrt::engine {

struct BackgroundCompile::Task {
  std::function<CompiledText()> work;
  std::promise<CompiledText> promise;
  std::shared_future<CompiledText> compiled{promise.get_future()};
  std::atomic<bool> taken{false};

  // Returns true for the first caller only, who then runs the task.
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

// With nice 5 a thread gets a third of the time of a busy thread on the same processor; with 19 a seventieth.
constexpr int kNice = 5;
constexpr std::chrono::milliseconds kPatience{50};

// Lowers this thread's priority. Failures are ignored: the thread then runs at normal priority.
void lower_priority() {
  const auto thread = static_cast<id_t>(syscall(SYS_gettid));
  const sched_param none{};
  (void)sched_setscheduler(static_cast<pid_t>(thread), SCHED_BATCH, &none);  // doesn't preempt others
  (void)setpriority(PRIO_PROCESS, thread, kNice);
}

int most_threads() {
  static const int count = [] {
    const char* value = std::getenv("TORCH_PJRT_COMPILE_THREADS");
    return value && *value ? std::max(1, std::atoi(value)) : 1;
  }();
  return count;
}

// Leaked, because its threads outlive static destructors. A forked child has none of the threads and never uses it.
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
    lower_priority();
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

CompiledText BackgroundCompile::result(const std::function<CompiledText(const Enough&)>& instead) {
  if (task_->take()) {
    task_->work = [&] { return instead([] { return false; }); };
    task_->run();
  } else if (task_->compiled.wait_for(kPatience) != std::future_status::ready) {
    CompiledText own = instead([this] { return is_done(); });
    if (own.executable) return own;
  }
  return task_->compiled.get();
}

}  // namespace tpjrt::engine
