// CRC-32, the checksum that zip archives keep of their members.
#pragma once

#include <cstdint>

#include "file/mapping.h"

namespace tpjrt::file {

uint32_t crc32(Bytes bytes);

}  // namespace tpjrt::file
