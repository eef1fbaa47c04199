// SHA-1, for keys and checksums of what this user alone writes.
#pragma once

#include <string>
#include <string_view>

namespace tpjrt::disk {

// 40 hexadecimal digits: an entry's key, and the checksum of its content.
std::string digest(std::string_view bytes);

}  // namespace tpjrt::disk
