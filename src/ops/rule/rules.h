// The table of lowering rules, from ATen name to the function that emits it. It is filled once, then only read.
//
// Each family is one file (pointwise.cpp, reduction.cpp, …) with the rules and, at its end, one function that adds
// them:
//
//   void add_reduction_rules(RuleTable& rules) {
//     rules.add("aten::cumsum", cumsum, kNotBools);
//     rules.add("aten::mm", mm, {.cpu = mm_on_cpu});
//   }
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ops/rule/call.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

// Sets of kinds of numbers.
enum Kinds : uint8_t { kBools = 1, kIntegers = 2, kFloats = 4, kComplexes = 8 };
inline constexpr uint8_t kReals = kIntegers | kFloats, kNotComplex = kReals | kBools, kNotBools = kReals | kComplexes;
inline constexpr uint8_t kInexact = kFloats | kComplexes, kEveryNumber = kNotComplex | kComplexes;
// Returns the kind of an element type.
Kinds kind_of(ElementType element);

// Returns one value for each result of the functional schema, in order; an undefined result has id -1. Values have
// the HLO type of c.results[i]; the table checks that.
using Rule = Values (*)(Emit& e, const Call& c);

// Rules that replace the plain one on a platform, where their code is faster, or right.
struct Platforms {
  Rule cpu = nullptr;
  Rule cuda = nullptr;
  Rule with_kernels = nullptr;  // if programs may call the CPU's kernels; null: `cpu` or the plain one
  // The number of operand elements from which such programs call PyTorch's own kernel (engine/lower/emit_call.h),
  // because XLA:CPU is slow in every form. -1: never.
  int64_t aten_from = -1;
  uint8_t aten_kinds = kEveryNumber;  // the kinds of the first operand's numbers for which that holds
  bool aten_of_results = false;       // count the results' elements instead, for rows picked from a table
  // Replaces aten_from where the first operand is a batch of images, in programs whose images are NHWC
  // (Emit::is_nhwc). The kernel takes and returns that layout.
  int64_t aten_from_nhwc = -1;
  // The result is the first operand but for a part, which the kernel can write in place.
  bool aten_in_place = false;
  // Counts the work from the operands' types, instead of their elements.
  int64_t (*aten_work)(const std::vector<graph::TypePtr>& operands) = nullptr;
};

// For ops that take XLA:CPU two to sixty times as long as PyTorch's kernels (docs/ops.md): running sums, selection by
// an order, sums at given places, selection by a mask. With fewer elements it is microseconds, and XLA compiles the
// op along with its neighbours.
inline constexpr int64_t kAtenFrom = 4096;
inline constexpr Platforms kByAten{.aten_from = kAtenFrom};
// For ops that write into a tensor, such as a key cache: nothing else of it is touched if its memory may be taken.
inline constexpr Platforms kWrittenByAten{.aten_from = kAtenFrom, .aten_in_place = true};
// For ops on images whose kernels take NHWC, too.
inline constexpr Platforms kPooledByAten{.aten_from = kAtenFrom, .aten_from_nhwc = kAtenFrom};
// For ops that XLA does as fast on images with other layouts.
inline constexpr Platforms kLastByAten{.aten_from_nhwc = kAtenFrom};
// For ops that pick rows.
inline constexpr Platforms kPickedByAten{.aten_from = kAtenFrom, .aten_of_results = true};
// For LAPACK's ops, always: their rules are for platforms whose programs can't call it.
inline constexpr Platforms kAlwaysByAten{.aten_from = 1};
// For draws, however few: PyTorch's kernels draw in programs on the CPU (kernels/host/host_kernel.h), so a seed gives the
// same numbers whether calls are interpreted or compiled.
inline constexpr Platforms kDrawnByAten{.aten_from = 0};
// For matrix products and powers, for which XLA:CPU has kernels and vectors of floats alone.
inline constexpr Platforms kIntegersByAten{.aten_from = kAtenFrom, .aten_kinds = kIntegers};

class RuleTable {
 public:
  struct Entry {
    Rule rule = nullptr;
    Platforms platforms;
    uint8_t kinds = kEveryNumber;

    Rule on(Target target) const {
      if (target == Target::kCpuWithKernels && platforms.with_kernels) return platforms.with_kernels;
      if (target == Target::kCuda && platforms.cuda) return platforms.cuda;
      return is_cpu(target) && platforms.cpu ? platforms.cpu : rule;
    }
  };

  // `kinds` are the kinds of numbers for which PyTorch has a kernel of the op. A first result of another kind is a
  // Mistake. Throws std::logic_error if the name is taken: an op lives in one place.
  void add(std::string_view name, Rule rule, Platforms platforms, uint8_t kinds = kEveryNumber);
  void add(std::string_view name, Rule rule, uint8_t kinds = kEveryNumber) { add(name, rule, Platforms(), kinds); }
  const Entry* find(std::string_view name) const;  // null: no rule; lives as long as the table
  // Adds an op that a compiler or a kernel may know as one thing: a composite, where it is asked for.
  void add_composite(std::string_view name, Rule rule, Platforms platforms, uint8_t kinds = kEveryNumber) {
    add(name, rule, platforms, kinds);
    add_composite(name);
  }
  void add_composite(std::string_view name, Rule rule, uint8_t kinds = kEveryNumber) {
    add_composite(name, rule, Platforms(), kinds);
  }
  // Adds a composite that has no rule and is decomposed.
  void add_composite(std::string_view name) { composites_.emplace(name); }
  // Adds an op that has no rule: PyTorch's kernel on such platforms, its decomposition on the others.
  void add_by_aten(std::string_view name, Platforms platforms = kByAten) { by_aten_.emplace(name, platforms); }
  // Returns the platforms of an op that has a rule or was added by add_by_aten; otherwise null.
  const Platforms* platforms_of(std::string_view name) const;
  bool is_composite(std::string_view name) const { return composites_.contains(std::string(name)); }
  const std::set<std::string>& composites() const { return composites_; }
  size_t size() const { return rules_.size(); }
  // Runs the call's rule for the emitter's target and checks its results: one for each of c.results, of that type.
  // Throws hlo::Error if they differ.
  static Values emit(const Entry& entry, Emit& e, const Call& c);

  // Returns the table of all rules of this library.
  static const RuleTable& instance();

 private:
  std::unordered_map<std::string, Entry> rules_;
  std::set<std::string> composites_;
  std::unordered_map<std::string, Platforms> by_aten_;
};

// One function for each family, at the end of its file.
void add_view_rules(RuleTable& rules);        // this project's own nodes: pjrt::view, pjrt::write, …
void add_pointwise_rules(RuleTable& rules);   // pointwise_arithmetic.cpp, … arithmetic, comparison, logic, bits
void add_activation_rules(RuleTable& rules);  // relu, gelu, softmax, … and their backwards
void add_special_rules(RuleTable& rules);     // erf, lgamma, digamma, bessel, …
void add_traced_rules(RuleTable& rules);      // Bessel and Airy functions, gradients of draws
void add_polynomial_rules(RuleTable& rules);  // orthogonal polynomials
void add_incomplete_gamma_rules(RuleTable& rules);
void add_rejection_rules(RuleTable& rules);      // gamma, Poisson, binomial and Dirichlet draws
void add_reduction_rules(RuleTable& rules);      // sum, mean, var, max, argmax, any, logsumexp, cumsum, …
void add_matmul_rules(RuleTable& rules);         // mm, bmm, addmm, baddbmm, dot, …
void add_scaled_mm_rules(RuleTable& rules);      // products of float8 matrices with scales
void add_linalg_rules(RuleTable& rules);         // cholesky, triangular_solve, …
void add_reflection_rules(RuleTable& rules);     // qr, geqrf, ormqr, …
void add_elimination_rules(RuleTable& rules);    // lu, solve, inv, det, …
void add_rotation_rules(RuleTable& rules);       // svd, eigh
void add_exponential_rules(RuleTable& rules);    // matrix_exp
void add_fft_rules(RuleTable& rules);            // Fourier transforms
void add_convolution_rules(RuleTable& rules);    // convolution and its backward
void add_pooling_rules(RuleTable& rules);        // max_pool, avg_pool, adaptive, and backwards
void add_normalization_rules(RuleTable& rules);  // batch, layer, group norm, and backwards
void add_indexing_rules(RuleTable& rules);       // index, index_put, gather, scatter, masked_fill, where, …
void add_binning_rules(RuleTable& rules);        // bucketize, searchsorted, histc
void add_embedding_rules(RuleTable& rules);      // embedding, embedding_bag, and backwards
void add_shape_rules(RuleTable& rules);          // cat, stack, flip, roll, repeat, tril, triu, …
void add_padding_rules(RuleTable& rules);        // constant, reflection and replication padding, and backwards
void add_sorting_rules(RuleTable& rules);        // sort, topk, kthvalue, …
void add_factory_rules(RuleTable& rules);        // arange, fill, eye, linspace, …
void add_random_rules(RuleTable& rules);         // uniform_, normal_, bernoulli, dropout, randint, randperm, …
void add_loss_rules(RuleTable& rules);           // nll_loss, mse_loss, bce, … and their backwards
void add_attention_rules(RuleTable& rules);      // scaled dot product attention, forward and backward
void add_assertion_rules(RuleTable& rules);
void add_scaling_rules(RuleTable& rules);     // GradScaler's ops
void add_resampling_rules(RuleTable& rules);  // upsample_*, grid_sampler, and backwards
void add_collective_rules(RuleTable& rules);  // between the ranks of a world

}  // namespace tpjrt::ops
