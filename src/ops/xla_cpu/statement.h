// Statements in the text of a program, for XLA:CPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpjrt::ops {

// A statement of a block of StableHLO text. Its parts refer to the text.
struct Statement {
  std::string_view text, name, type;  // of its last result: "4x4xf32"
  std::vector<int32_t> operands;      // statements of the block
  int cost = -1;                      // of an element, in additions; negative for a kernel that readers don't fuse
  double elements = 1;
  bool is_constant = false;  // XLA folds computations on constants
};

std::vector<Statement> statements_in(std::string_view text, size_t indent);

// Return {4, 4} and "complex<f32>" for "4x4xcomplex<f32>".
std::vector<int64_t> dims_in(std::string_view type);
std::string_view element_in(std::string_view type);
double elements_in(std::string_view type);

// Returns where the statements of the function begin and end whose line begins at `at`, in the text of a module.
std::pair<size_t, size_t> body_in(std::string_view module, size_t at);

struct Operand {
  std::string name, type;
};

// Returns a statement: a call that gives the first operand back in the operand's memory. XLA doesn't look into it.
std::string opaque_call(std::string_view name, const std::vector<Operand>& operands);

}  // namespace tpjrt::ops
