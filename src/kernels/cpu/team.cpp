// One thread, its queue of work, and the threads that help it.
#include "kernels/cpu/team.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace tpjrt::kernels {
namespace {

std::atomic<int> team_size{1};

// Sets the number of threads that OpenMP gives this thread, for libraries that ask OpenMP instead of at::, and
// restores it afterwards: the thread may be the user's own. ATen's function would set it for other threads, too.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()), count_(count) { set(count_); }
  ~Threads() { set(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  void set(int count) const {
    static const auto set_number = reinterpret_cast<void (*)(int)>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (set_number != nullptr && before_ != count_) set_number(count);
  }

  int before_, count_;
};

class Team {
 public:
  // Never destroyed: its thread may be waiting when the process ends.
  static Team& instance() {
    static auto* team = new Team;
    return *team;
  }

  void run(const std::function<void()>& work) {
    Given given{&work, {}, false};
    std::unique_lock lock(lock_);
    given_.push_back(&given);
    comes_.notify_one();
    done_.wait(lock, [&] { return given.done; });
    if (given.error) std::rethrow_exception(given.error);
  }

 private:
  struct Given {
    const std::function<void()>* work;
    std::exception_ptr error;
    bool done;
  };

  Team() {
    std::thread([this] { serve(); }).detach();
  }

  void serve() {
    std::unique_lock lock(lock_);
    while (true) {
      comes_.wait(lock, [&] { return !given_.empty(); });
      Given& given = *given_.front();
      given_.pop_front();
      lock.unlock();
      try {
        const Threads several(team_size.load(std::memory_order_relaxed));
        (*given.work)();
      } catch (...) {
        given.error = std::current_exception();
      }
      lock.lock();
      given.done = true;
      done_.notify_all();
    }
  }

  std::mutex lock_;
  std::condition_variable comes_, done_;
  std::deque<Given*> given_;
};

}  // namespace

void set_team_size(int threads) { team_size.store(threads, std::memory_order_relaxed); }

void compute(bool large, const std::function<void()>& work) {
  if (large && team_size.load(std::memory_order_relaxed) > 1) return Team::instance().run(work);
  const Threads one(1);
  work();
}

}  // namespace tpjrt::kernels
