// numpy's .npy: one array.
#pragma once

#include <string>
#include <vector>

#include "file/safetensors.h"

namespace tpjrt::file {

// Reads a file's bytes, which must outlive the result; row-major. Throws Error, which calls the file `path`.
Stored read_npy(Bytes bytes, const std::string& path);
// Writes an array. Throws Error if it can't be written. A dtype that numpy lacks is written as unsigned integers of
// the same width.
void write_npy(const std::string& path, const Stored& tensor);

}  // namespace tpjrt::file
