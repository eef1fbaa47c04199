// Redirects the references of loaded libraries: their calls of a function, and its address in their data.
//
// It is for behaviour of a library that can't be chosen in another way. Its users are listed in docs/design/patches.md.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

namespace tpjrt::linkage {

// A loaded library.
struct Library {
  std::string_view path;
  std::function<bool(const void*)> contains;  // an address
};

struct Redirection {
  std::string_view symbol;  // mangled
  void* function;
  size_t count = 0;  // of references that lead to `function` now
};

// Redirects the references of all libraries that `is_chosen`. Counts are 0 where that is not possible: on other
// systems than Linux, on other processors than x86-64 and AArch64, and where a library has no such references.
// It may be repeated. `is_chosen` runs with the dynamic linker's lock held.
void redirect(const std::function<bool(const Library&)>& is_chosen, std::span<Redirection> redirections);

}  // namespace tpjrt::linkage
