// Decides which products call PyTorch's libraries through the CPU's kernel (src/kernels/cpu/products/product.cpp),
// and which XLA compiles.
#include <algorithm>
#include <optional>
#include <tuple>

#include "hlo/attribute.h"
#include "ops/contraction/product.h"
#include "ops/cpu/machine.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {
namespace {

// A matrix, or a batch of them, as the kernel takes it; its rows and columns may be transposed in memory.
struct Matrices {
  Value x;
  bool transposed = false;
};

// Returns `given` as matrices of free by contracted dimensions if `free_first`, else of contracted by free ones.
// Returns nothing if that would need a copy.
std::optional<Matrices> matrices(Emit& e, const Value& given, const Dims& batch, const Dims& contracting,
                                 bool free_first) {
  Dims free;
  for (int64_t d = 0; d < given.rank(); ++d) {
    const auto has = [d](const Dims& dims) { return std::find(dims.begin(), dims.end(), d) != dims.end(); };
    if (!has(batch) && !has(contracting)) free.push_back(d);
  }
  const auto chained = [](std::initializer_list<Dims> parts) {
    Dims all;
    for (const Dims& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const Dims plain = free_first ? chained({batch, free, contracting}) : chained({batch, contracting, free});
  const Dims turned = free_first ? chained({batch, contracting, free}) : chained({batch, free, contracting});
  const auto counted = [&](const Dims& dims) {
    int64_t count = 1;
    for (int64_t d : dims) count *= given.dim(d);
    return count;
  };
  const auto shaped = [&](const Value& x, bool transposed) -> Matrices {
    const int64_t first = counted(free_first != transposed ? free : contracting);
    const int64_t second = counted(free_first != transposed ? contracting : free);
    return {e.reshape(x, batch.empty() ? Dims{first, second} : Dims{counted(batch), first, second}), transposed};
  };
  // The layout before a transpose: the original order of dimensions, in the numbering of `given`.
  if (const auto* moved = e.moved_from(given)) {
    Dims lies(moved->permutation.size());
    for (size_t i = 0; i < lies.size(); ++i) lies[at(moved->permutation[i])] = static_cast<int64_t>(i);
    if (lies == plain) return shaped(moved->from, false);
    if (lies == turned) return shaped(moved->from, true);
  }
  const Dims now = range(0, given.rank());
  if (now == plain) return shaped(given, false);
  if (now == turned) return shaped(given, true);
  return {};
}

struct Sizes {
  int64_t batch, rows, depth, columns;
  bool a_transposed, b_transposed;

  int64_t work() const { return batch * rows * depth * columns; }
};

// Returns whether this project's own kernel computes the product (kernels/cpu/products/few_rows.h). It reads the
// matrix in the given layout and converts the elements after it has read them.
bool are_few_rows(ElementType element, const Sizes& s) {
  constexpr int64_t kWork = 1 << 16, kTurned = 1024, kStraight = 16;
  const Machine& machine = Machine::here();
  if (!machine.avx2 || s.work() < kWork) return false;
  if (element == ElementType::kBF16 && machine.bf16) return s.rows == 1;
  const bool is_nobodys = element == ElementType::kBF16 || (element == ElementType::kF16 && !machine.fp16);
  return is_nobodys && s.rows <= (s.b_transposed ? kTurned : kStraight);
}

// Note [Whose products]: a library multiplies some matrices many times faster than XLA:CPU, but a call costs some 10
// µs and fuses with nothing. A product calls the library where that is faster by more than the call costs. The choice
// depends on the dtype, the sizes and what oneDNN supports on this machine; docs/performance.md has the times.
//
// - bfloat16 calls oneDNN unless it is small, where oneDNN multiplies it (AVX-512). XLA converts to float32, and
//   takes 10 to 60 times as long for a few rows times a transposed matrix. One row takes this project's own kernel.
// - float16 does likewise, where oneDNN multiplies it (AVX512-FP16).
// - Elsewhere both take this project's own kernel from AVX2 on, for up to 1024 rows times a transposed matrix, or 16
//   times another. XLA converts the matrix first; PyTorch multiplies row by row.
// - float32 calls the library where oneDNN multiplies bfloat16 and an operand is transposed, which XLA's kernel can't
//   read in order. Other products take as long either way. One row stays with XLA, which reads the matrix as fast.
//   Without AVX-512 XLA is as fast, but for batches of small products, which it computes one by one: there they go to ATen.
// - int8 into int32 (_int_mm) calls it where it is exact (VNNI).
bool is_the_librarys(ElementType element, const Sizes& s) {
  constexpr int64_t kTurned = 1 << 19, kStraight = (1 << 21) + 1, kFloats = 1 << 23, kFew = 8;
  constexpr int64_t kSmall = 1 << 15;  // of each product of a batch, as kernels/cpu/products/product.cpp has it
  const Machine& machine = Machine::here();
  const int64_t work = s.work();
  if (work == 0) return false;
  const bool is_known = element == ElementType::kBF16 || element == ElementType::kF16 || element == ElementType::kF32 ||
                        (element == ElementType::kS8 && s.batch == 1 && machine.vnni);
  if (machine.takes_all) return is_known && machine.bf16;
  const bool turned = s.a_transposed || s.b_transposed;
  const bool narrow = work >= (turned ? kTurned : kStraight);
  switch (element) {
    case ElementType::kBF16: return machine.bf16 && narrow;
    case ElementType::kF16: return machine.fp16 && narrow;
    case ElementType::kF32:
      if (!machine.bf16) return machine.avx2 && turned && work >= kTurned && work <= s.batch * kSmall;
      return turned && work >= kFloats && std::min(s.rows, s.columns) >= kFew;
    case ElementType::kS8: return machine.vnni && s.batch == 1 && work >= kTurned;
    default: return false;
  }
}

std::optional<Value> by_library(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                                ElementType result_element, const Added* added) {
  if (a.element() != b.element()) return {};
  const auto first = matrices(e, a, dims.lhs_batch, dims.lhs_contracting, true);
  const auto second = matrices(e, b, dims.rhs_batch, dims.rhs_contracting, false);
  if (!first || !second) return {};
  const int64_t rank = first->x.rank();
  const auto size = [&](const Matrices& m, int64_t place) {
    return m.x.dim(rank - (m.transposed ? 3 - place : place));
  };
  const Sizes sizes{rank == 3 ? first->x.dim(0) : 1,
                    size(*first, 2),
                    size(*first, 1),
                    size(*second, 1),
                    first->transposed,
                    second->transposed};
  const bool few_rows = are_few_rows(a.element(), sizes);
  if (!few_rows && !is_the_librarys(a.element(), sizes)) return {};
  Values operands{first->x, second->x};
  std::map<std::string, std::string> attributes{{"a_transposed", hlo::attribute(first->transposed)},
                                                {"b_transposed", hlo::attribute(second->transposed)},
                                                {"few_rows", hlo::attribute(few_rows)}};
  const Dims result = rank == 3 ? Dims{sizes.batch, sizes.rows, sizes.columns} : Dims{sizes.rows, sizes.columns};
  if (added != nullptr) {
    operands.push_back(added->x);
    attributes["alpha"] = hlo::attribute(added->alpha);
    attributes["beta"] = hlo::attribute(added->beta);
  }
  const Value product = e.call_kernel("torch_pjrt.product", operands, {{result_element, result}}, attributes)[0];
  Dims full;
  for (int64_t d : dims.lhs_batch) full.push_back(a.dim(d));
  for (const auto& [x, batch, contracting] :
       {std::tie(a, dims.lhs_batch, dims.lhs_contracting), std::tie(b, dims.rhs_batch, dims.rhs_contracting)}) {
    for (int64_t d = 0; d < x.rank(); ++d) {
      const bool contracted = std::find(contracting.begin(), contracting.end(), d) != contracting.end();
      const bool batched = std::find(batch.begin(), batch.end(), d) != batch.end();
      if (!contracted && !batched) full.push_back(x.dim(d));
    }
  }
  return e.reshape(product, full);
}

}  // namespace

Value product_with_kernels(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out) {
  const ElementType in = a.element();
  const bool counts = in == ElementType::kS8 && out == ElementType::kS32;
  if (counts || out == Emit::compute_element(in)) {
    if (auto product = by_library(e, a, b, dims, counts ? out : in, nullptr)) return *product;
  }
  return product_on_cpu(e, a, b, dims, out);
}

std::optional<Value> sum_with_kernels(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                                      const Added& added) {
  return by_library(e, a, b, dims, a.element(), &added);
}

}  // namespace tpjrt::ops
