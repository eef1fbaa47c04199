// An error in a file. The message names the file and says what to do.
#pragma once

#include <stdexcept>

namespace tpjrt::file {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tpjrt::file
