// Large memory that a plugin frees is kept for its next allocation.
//
// Note [Large memory]: XLA:CPU allocates the temporary memory of a program in one block in each run. The C library maps
// blocks of more than 32 MB anew, and the kernel clears them page by page when they are first written: up to a third of
// a training step that is one program. PJRT has no way to give memory, and the C library's own settings are for the
// whole process. So the plugin's references to posix_memalign, aligned_alloc and free lead to functions that keep large
// blocks. Kept and used blocks together are never more than were in use before, so a process's peak stays. Huge pages
// instead, by madvise, took from half to twice the time, because the kernel moves pages for them once its memory is
// fragmented.
#pragma once

#include <cstddef>

namespace tpjrt::pjrt {

// Replaces the references of the loaded library that contains this address. Returns false where that is not possible:
// without glibc, or if the library has no such references. It may be repeated.
bool keep_large_memory(const void* in_library) noexcept;

// Returns the bytes that are kept.
size_t kept_memory() noexcept;
// Frees what is kept.
void return_kept_memory() noexcept;

}  // namespace tpjrt::pjrt
