// The random numbers that a program would draw (ops/creation/draw.h), drawn on the host: the same bits for the same
// key.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace tpjrt::kernels {

// A call's key, and its counter.
using RandomState = std::array<uint64_t, 2>;

// Returns the key that a program makes of a call's two numbers (random_key in engine/lower/module/emit_program.cpp).
RandomState random_state_of(uint64_t seed, uint64_t offset);

// Returns a PyTorch generator for PyTorch's own kernels, seeded with the key.
at::Generator generator_of(const RandomState& state);

// Returns true with the given probability.
at::Tensor random_chance(RandomState& state, double probability, c10::IntArrayRef sizes);
// Returns numbers in [0, 1).
at::Tensor random_uniform(RandomState& state, c10::ScalarType dtype, c10::IntArrayRef sizes);
// Returns from + bits % range in int64, with 32 bits where that is enough; a range of 0 means 2^64.
at::Tensor random_integers(RandomState& state, int64_t from, uint64_t range, c10::IntArrayRef sizes);

}  // namespace tpjrt::kernels
