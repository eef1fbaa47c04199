// Corrections where Meta kernels differ from the CPU's kernels: in strides above all, in places in dtypes and sizes.
#pragma once

#include "device/aten_call/meta.h"

namespace tpjrt::device {

// Replaces Meta's results by the CPU's. Only ops in the table of corrections.cpp are changed.
void correct(const graph::Signature& signature, Outline& outline);

}  // namespace tpjrt::device
