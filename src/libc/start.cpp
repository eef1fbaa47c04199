// The start of an executable on systems whose glibc is older than 2.34.
//
// glibc 2.34 runs an executable's constructors itself and passes no init function. An older glibc expects one, and its
// version of __libc_start_main, which newer ones keep, calls it on both.
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#endif

__asm__(".symver first_libc_start_main, __libc_start_main@" FIRST);

using Constructor = void (*)(int, char**, char**);

extern "C" {

using Main = int(int, char**, char**);
int first_libc_start_main(Main* main, int count, char** arguments, Constructor init, void (*fini)(),
                          void (*end_of_loader)(), void* end_of_stack);

// The linker defines these.
extern __attribute__((visibility("hidden"))) Constructor __init_array_start[];
extern __attribute__((visibility("hidden"))) Constructor __init_array_end[];

static void run_constructors(int count, char** arguments, char** environment) {
  for (Constructor* each = __init_array_start; each != __init_array_end; ++each) (*each)(count, arguments, environment);
}

int __wrap___libc_start_main(Main* main, int count, char** arguments, Constructor, void (*fini)(),
                             void (*end_of_loader)(), void* end_of_stack) {
  return first_libc_start_main(main, count, arguments, run_constructors, fini, end_of_loader, end_of_stack);
}
}
