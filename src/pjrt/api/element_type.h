// Element types of PJRT buffers: sizes and names.
#pragma once

#include <pjrt_c_api.h>

#include <cstddef>
#include <string_view>

namespace tpjrt::pjrt {

// Returns the bytes of one element in host memory, where types under 8 bits take a byte each. 0 for TOKEN, INVALID and
// types of a later API.
size_t byte_width(PJRT_Buffer_Type type);

// Returns XLA's spelling: "pred", "s32", "bf16", "c64". "unknown" for types of a later API.
std::string_view spelling(PJRT_Buffer_Type type);

}  // namespace tpjrt::pjrt
