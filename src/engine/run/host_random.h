// The random numbers that a program would draw (ops/creation/draw.h), drawn here: the same bits for the same key.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace tpjrt::engine {

// The key of a call, and how far it has drawn.
using RandomState = std::array<uint64_t, 2>;

// As a program makes it of a call's two numbers (random_key in engine/lower/program/emit_program.cpp).
RandomState random_state_of(uint64_t seed, uint64_t offset);

// True with the given probability.
at::Tensor random_chance(RandomState& state, double probability, c10::IntArrayRef sizes);
// float32 in [0, 1).
at::Tensor random_uniform(RandomState& state, c10::IntArrayRef sizes);

}  // namespace tpjrt::engine
