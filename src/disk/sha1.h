// SHA-1, for keys and checksums of data that only this user writes.
#pragma once

#include <string>
#include <string_view>

namespace tpjrt::disk {

// Returns 40 hexadecimal digits: an entry's key, or the checksum of its content.
std::string digest(std::string_view bytes);

}  // namespace tpjrt::disk
