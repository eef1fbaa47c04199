// Replacements for symbols that the build machine's C and C++ libraries have in a newer version than the oldest
// system that a wheel supports.
//
// A reference binds to the newest version of a symbol on the build machine, and a system that lacks this version
// can't load the module. The linker therefore substitutes these functions (--wrap; cmake/OldestSystem.cmake reads the
// names here). tools/oldest_system.py refuses a wheel that needs another new symbol, and names it.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <ctime>
#include <mutex>
#include <new>

// The version of all symbols in glibc's first release for this architecture.
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#endif

__asm__(".symver first_dlopen, dlopen@" FIRST);
__asm__(".symver first_dlclose, dlclose@" FIRST);
__asm__(".symver first_dlsym, dlsym@" FIRST);
__asm__(".symver first_dladdr, dladdr@" FIRST);
__asm__(".symver first_dlerror, dlerror@" FIRST);
__asm__(".symver first_pthread_once, pthread_once@" FIRST);
__asm__(".symver first_pow, pow@" FIRST);
__asm__(".symver first_exp, exp@" FIRST);
__asm__(".symver first_log, log@" FIRST);
__asm__(".symver first_rdlock, pthread_rwlock_rdlock@" FIRST);
__asm__(".symver first_wrlock, pthread_rwlock_wrlock@" FIRST);
__asm__(".symver first_unlock, pthread_rwlock_unlock@" FIRST);

extern "C" {

void* first_dlopen(const char* file, int mode);
int first_dlclose(void* library);
void* first_dlsym(void* library, const char* name);
int first_dladdr(const void* address, Dl_info* found);
char* first_dlerror();
int first_pthread_once(pthread_once_t* control, void (*routine)());
double first_pow(double base, double exponent);
double first_exp(double x);
double first_log(double x);
int first_rdlock(pthread_rwlock_t* lock);
int first_wrlock(pthread_rwlock_t* lock);
int first_unlock(pthread_rwlock_t* lock);

void* __wrap_dlopen(const char* file, int mode) { return first_dlopen(file, mode); }
int __wrap_dlclose(void* library) { return first_dlclose(library); }
void* __wrap_dlsym(void* library, const char* name) { return first_dlsym(library, name); }
int __wrap_dladdr(const void* address, Dl_info* found) { return first_dladdr(address, found); }
char* __wrap_dlerror() { return first_dlerror(); }
int __wrap_pthread_once(pthread_once_t* control, void (*routine)()) { return first_pthread_once(control, routine); }
double __wrap_pow(double base, double exponent) { return first_pow(base, exponent); }

double __wrap_exp(double x) { return first_exp(x); }
double __wrap_log(double x) { return first_log(x); }
int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t* lock) { return first_rdlock(lock); }
int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t* lock) { return first_wrlock(lock); }
int __wrap_pthread_rwlock_unlock(pthread_rwlock_t* lock) { return first_unlock(lock); }

// Before 2.33 these were inline and called functions that newer headers don't declare. The kernel's structure is
// glibc's.
int __wrap_stat(const char* path, struct stat* found) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, found, 0));
}
int __wrap_lstat(const char* path, struct stat* found) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW));
}
int __wrap_fstat(int file, struct stat* found) { return static_cast<int>(syscall(SYS_fstat, file, found)); }
int __wrap_fstatat(int folder, const char* path, struct stat* found, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, found, flags));
}

// Before 2.30 only a wait by the wall clock had a timeout. A change of that clock moves the timeout there.
using Wait = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
static int wait_by_the_wall_clock(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* end) {
  constexpr long kSecond = 1'000'000'000;
  timespec now{}, wall{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += end->tv_sec - now.tv_sec;
  wall.tv_nsec += end->tv_nsec - now.tv_nsec;
  if (wall.tv_nsec < 0) wall.tv_sec -= 1, wall.tv_nsec += kSecond;
  if (wall.tv_nsec >= kSecond) wall.tv_sec += 1, wall.tv_nsec -= kSecond;
  return pthread_cond_timedwait(changed, mutex, &wall);
}
int __wrap_pthread_cond_clockwait(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* end) {
  static Wait* const newer = reinterpret_cast<Wait*>(first_dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  return (newer ? *newer : wait_by_the_wall_clock)(changed, mutex, clock, end);
}

// Exists since 2.32. libstdc++ counts references without atomics where it is true, which it never is beside torch.
char __wrap___libc_single_threaded = 0;

// std::condition_variable::wait, which has a new version in GCC 12.
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* changed,
                                                                      std::unique_lock<std::mutex>* lock) {
  pthread_cond_wait(changed->native_handle(), lock->mutex()->native_handle());
}

// std::__throw_bad_array_new_length, new in GCC 11.
[[noreturn]] void __wrap__ZSt28__throw_bad_array_new_lengthv() { throw std::bad_array_new_length(); }

}  // extern "C"
