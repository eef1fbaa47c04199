// What is wrong with a file. The message names the file and the cure.
#pragma once

#include <stdexcept>

namespace tpjrt::file {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tpjrt::file
