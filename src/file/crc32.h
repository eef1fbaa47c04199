// CRC-32, as zip archives use it.
#pragma once

#include <cstdint>

#include "file/mapping.h"

namespace tpjrt::file {

uint32_t crc32(Bytes bytes);

}  // namespace tpjrt::file
