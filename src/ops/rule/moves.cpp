// Data movement on the bits of elements: Note [Data movement on bits] (emit.h).
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>

#include "ops/rule/emit.h"

namespace tpjrt::ops {
namespace {

constexpr int64_t kSign = 0x8000;

bool is_zero(const std::optional<double>& number) { return number && *number == 0 && !std::signbit(*number); }

bool are_all(const Dims& numbers, int64_t number) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n == number; });
}

bool fits(const Value& x, const Value& among, const Dims& low) {
  for (size_t i = 0; i < low.size(); ++i) {
    if (low[i] < 0 || low[i] + x.dims()[i] > among.dims()[i]) return false;
  }
  return true;
}

// Returns x among zeros, which every compiler treats as elementwise.
Value placed(Emit& e, const Value& x, const Value& among, const Dims& low) {
  Dims high = among.dims();
  for (size_t i = 0; i < high.size(); ++i) high[i] -= low[i] + x.dims()[i];
  return e.Builder::pad(x, e.zeros({x.element(), {}}), low, high, Dims(low.size(), 0));
}

// Returns the bits of a bfloat16 that is exactly this number, or nothing.
std::optional<int64_t> bits_of_bfloat16(double number) {
  const c10::BFloat16 narrow(static_cast<float>(number));
  if (static_cast<double>(static_cast<float>(narrow)) != number) return {};
  return narrow.x;
}

}  // namespace

Value Emit::bits_of(const Value& x, ElementType carrier) {
  if (const auto known = bits_.find(x.id); known != bits_.end()) return known->second;
  if (const auto number = number_of(x); number && x.element() == ElementType::kBF16) {
    if (const auto bits = bits_of_bfloat16(*number)) return constant(*bits, Type{carrier, x.dims()});
  }
  // XLA would convert a reshape of bfloat16 there and back as well if more moves follow, so it is repeated on the
  // bits.
  if (const auto origin = reshaped_.find(x.id); origin != reshaped_.end()) {
    return Builder::reshape(bits_of(origin->second, carrier), x.dims());
  }
  return bitcast_convert(x, {carrier, x.dims()});
}

Value Emit::moved(const Values& xs, const std::function<Value(const Values&)>& move) {
  const ElementType element = xs.at(0).element(), carrier = backend_->carrier(element);
  if (carrier == element) return move(xs);
  Values all;
  for (const Value& x : xs) all.push_back(bits_of(x, carrier));
  const Value bits = move(all);
  const Value result = bitcast_convert(bits, {element, bits.dims()});
  bits_.emplace(result.id, bits);
  return result;
}

Value Emit::reshape(const Value& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  // A reshape moves nothing, so it is made of the bits only where these exist already.
  if (bits_.contains(x.id)) return moved({x}, [&](const Values& bits) { return reshape(bits[0], dims); });
  const auto reshaped = reshaped_.find(x.id);
  const Value origin = reshaped == reshaped_.end() ? x : reshaped->second;
  if (origin.dims() == dims) return origin;
  const Value result = Builder::reshape(origin, dims);
  reshaped_.emplace(result.id, origin);
  return result;
}

Value Emit::broadcast_in_dim(const Value& x, const Dims& dims, const Dims& broadcast_dimensions) {
  if (x.dims() == dims && std::is_sorted(broadcast_dimensions.begin(), broadcast_dimensions.end())) return x;
  return moved({x}, [&](const Values& bits) { return Builder::broadcast_in_dim(bits[0], dims, broadcast_dimensions); });
}

Value Emit::slice(const Value& x, const Dims& start, const Dims& limit, const Dims& strides) {
  if (limit == x.dims() && are_all(start, 0) && are_all(strides, 1)) return x;
  return moved({x}, [&](const Values& bits) { return Builder::slice(bits[0], start, limit, strides); });
}

Value Emit::pad(const Value& x, const Value& value, const Dims& low, const Dims& high, const Dims& interior) {
  if (are_all(low, 0) && are_all(high, 0) && are_all(interior, 0)) return x;
  return moved({x, value}, [&](const Values& bits) { return Builder::pad(bits[0], bits[1], low, high, interior); });
}

Value Emit::reverse(const Value& x, const Dims& dimensions) {
  if (dimensions.empty()) return x;
  return moved({x}, [&](const Values& bits) { return Builder::reverse(bits[0], dimensions); });
}

Value Emit::concatenate(const Values& xs, int64_t dimension) {
  if (xs.empty()) return Builder::concatenate(xs, dimension);  // which throws
  return moved(xs, [&](const Values& bits) { return Builder::concatenate(bits, dimension); });
}

Value Emit::dynamic_slice(const Value& x, const Values& starts, const Dims& sizes) {
  return moved({x}, [&](const Values& bits) { return Builder::dynamic_slice(bits[0], starts, sizes); });
}

namespace {

// Returns the numbers if all are constants, else nothing.
Dims known(const Emit& e, const Values& starts) {
  Dims numbers;
  for (const Value& start : starts) {
    const auto number = e.number_of(start);
    if (!number || std::isnan(*number)) return {};
    numbers.push_back(static_cast<int64_t>(*number));
  }
  return numbers;
}

}  // namespace

Value Emit::dynamic_update_slice(const Value& x, const Value& update, const Values& starts) {
  return moved({x, update}, [&](const Values& bits) {
    const Value &base = bits[0], &part = bits[1];
    if (is_zero(number_of(base))) {
      const Dims low = known(*this, starts);
      if (!low.empty() && fits(part, base, low)) return placed(*this, part, base, low);
    }
    if (overwrites_ != Overwrites::kReadAnywhere || starts.empty())
      return Builder::dynamic_update_slice(base, part, starts);
    // Both operands of the select are as large as x, and written into memory of their own.
    const auto among_zeros = [&](const Value& y) {
      return Builder::dynamic_update_slice(zeros({y.element(), base.dims()}), y, starts);
    };
    return Builder::select(among_zeros(ones({ElementType::kPred, part.dims()})), among_zeros(part), base);
  });
}

Value Emit::gather(const Value& operand, const Value& start_indices, const hlo::GatherDimensions& dimensions,
                   const Dims& slice_sizes) {
  return moved({operand},
               [&](const Values& bits) { return Builder::gather(bits[0], start_indices, dimensions, slice_sizes); });
}

Value Emit::select(const Value& predicate, const Value& on_true, const Value& on_false) {
  return moved({on_true, on_false}, [&](const Values& bits) { return Builder::select(predicate, bits[0], bits[1]); });
}

Value Emit::unary(std::string_view op, const Value& x) {
  const ElementType carrier = backend_->carrier(x.element());
  if (carrier == x.element() || (op != "negate" && op != "abs")) return Builder::unary(op, x);
  return moved({x}, [&](const Values& bits) {
    const Type& type = bits[0].type;
    return op == "negate" ? binary("xor", bits[0], constant(kSign, type))
                          : binary("and", bits[0], constant(kSign - 1, type));
  });
}

}  // namespace tpjrt::ops
