// src/libc/older.cpp behaves like glibc. Ends with the number of the line whose check fails.
#include "../../src/libc/older.cpp"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#define HOLDS(what) \
  if (!(what)) return __LINE__ % 256

static bool same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size && a.st_mode == b.st_mode &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

static timespec after(clockid_t clock, long milliseconds) {
  timespec end{};
  clock_gettime(clock, &end);
  end.tv_nsec += milliseconds * 1'000'000;
  end.tv_sec += end.tv_nsec / 1'000'000'000;
  end.tv_nsec %= 1'000'000'000;
  return end;
}

int main(int, char** arguments) {
  struct stat a{}, b{};
  HOLDS(__wrap_stat(arguments[0], &a) == 0 && stat(arguments[0], &b) == 0 && same(a, b));
  HOLDS(__wrap_stat("/none", &a) == -1 && errno == ENOENT);
  a = {};
  HOLDS(__wrap_lstat("/proc/self/exe", &a) == 0 && S_ISLNK(a.st_mode));
  const int file = open(arguments[0], O_RDONLY);
  a = {};
  HOLDS(__wrap_fstat(file, &a) == 0 && same(a, b));
  a = {};
  HOLDS(__wrap_fstatat(AT_FDCWD, arguments[0], &a, AT_SYMLINK_NOFOLLOW) == 0 && same(a, b));

  void* self = __wrap_dlopen(nullptr, RTLD_NOW);
  HOLDS(self && __wrap_dlsym(self, "malloc") && !__wrap_dlsym(self, "no_such_symbol") && __wrap_dlerror());
  HOLDS(__wrap_dlclose(self) == 0);
  static int runs = 0;
  pthread_once_t once = PTHREAD_ONCE_INIT;
  for (int i = 0; i < 2; ++i) __wrap_pthread_once(&once, [] { ++runs; });
  HOLDS(runs == 1);
  for (double x : {0.5, 2.0, 1e300, 0.0, -3.0}) {
    for (double y : {0.0, 0.3, 2.0, -1.0, 400.0}) {
      const double ours = __wrap_pow(x, y), theirs = std::pow(x, y);
      HOLDS(std::memcmp(&ours, &theirs, sizeof ours) == 0 || (std::isnan(ours) && std::isnan(theirs)));
    }
  }

  for (Wait* wait : {&__wrap_pthread_cond_clockwait, &wait_by_the_wall_clock}) {
    std::mutex mutex;
    std::condition_variable changed;
    std::unique_lock lock(mutex);
    for (long milliseconds : {0L, 30L, 990L}) {
      const auto started = std::chrono::steady_clock::now();
      const timespec end = after(CLOCK_MONOTONIC, milliseconds);
      int ended = 0;
      while (ended == 0) ended = wait(changed.native_handle(), mutex.native_handle(), CLOCK_MONOTONIC, &end);
      HOLDS(ended == ETIMEDOUT);
      const auto took = std::chrono::steady_clock::now() - started;
      HOLDS(took > std::chrono::milliseconds(milliseconds - 5) &&
            took < std::chrono::milliseconds(milliseconds + 5000));
    }
    bool done = false;
    std::thread other([&] {
      std::lock_guard guard(mutex);
      done = true;
      changed.notify_all();
    });
    while (!done) __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(&changed, &lock);
    lock.unlock();
    other.join();
  }
  return 0;
}
