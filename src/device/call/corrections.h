// What Meta kernels say otherwise than the CPU's kernels give: strides above all, in places dtypes and sizes.
#pragma once

#include "device/call/meta.h"

namespace tpjrt::device {

// Puts the CPU's results in place of Meta's. No op but those in the table of corrections.cpp is touched.
void correct(const graph::Signature& signature, Outline& outline);

}  // namespace tpjrt::device
