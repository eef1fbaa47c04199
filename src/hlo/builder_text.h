// How a Builder writes its text: the StableHLO syntax that its ops share, and its state. Private to src/hlo.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hlo/builder.h"

namespace tpjrt::hlo {

inline bool is_of_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Calls `each` with every SSA name in the text, "%0" for "%0#1". Names inside string literals are included.
template <class F>
void each_name(std::string_view text, F&& each) {
  for (size_t at = text.find('%'); at != text.npos; at = text.find('%', at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && is_of_name(text[end])) ++end;
    each(text.substr(at, end - at));
  }
}

// Returns the statements of a block's text, as a Builder writes it. Lines of their regions are indented deeper, or
// begin with a closing bracket.
std::vector<std::string_view> statements(std::string_view text, size_t indent);
// Returns "%0" for "%0 = …" and "%0:2 = …"; empty for a return.
std::string_view defined_name(std::string_view statement);

std::string array(const Dims& dims);                                    // "array<i64: 0, 1>"
std::string array(const std::vector<bool>& xs);                         // "array<i1: true, false>"
std::string pairs(const std::vector<std::pair<int64_t, int64_t>>& xs);  // dense<[[0, 1]]> : tensor<1x2xi64>
std::vector<Type> types_of(const Values& values);
std::string types(const Values& values);  // "tensor<f32>, tensor<i1>"
std::string types(const std::vector<Type>& types);
std::string quoted(std::string_view text);                  // MLIR string literal
std::string float_text(double exact, ElementType element);  // parses to the same value

// An op's operand and result types. Refers to them.
struct Arrow {
  std::array<const Type*, 3> few{};  // the operands' types, or
  const Values* operands = nullptr;
  const Type* result = nullptr;  // or
  const std::vector<Type>* results = nullptr;
};
template <size_t N>
Arrow arrow(const Type* const (&operands)[N], const Type& result) {
  Arrow made{{}, nullptr, &result, nullptr};
  std::copy(operands, operands + N, made.few.begin());
  return made;
}
template <size_t N>
Arrow arrow(const Type* const (&operands)[N], const std::vector<Type>& results) {
  Arrow made{{}, nullptr, nullptr, &results};
  std::copy(operands, operands + N, made.few.begin());
  return made;
}
inline Arrow arrow(const Values& operands, const Type& result) { return {{}, &operands, &result, nullptr}; }
inline Arrow arrow(const Values& operands, const std::vector<Type>& results) {
  return {{}, &operands, nullptr, &results};
}

// Parts of a text. Parts that are needed only if there is a text are passed as the value that they format.
inline void append(std::string& text, std::string_view part) { text += part; }
void append(std::string& text, const Type& type);    // "tensor<4x4xf32>"
void append(std::string& text, const Dims& dims);    // "[0, 1]"
void append(std::string& text, const Arrow& arrow);  // "(tensor<f32>, …) -> tensor<f32>"; several results in brackets
template <class Number>
  requires std::integral<Number> || std::floating_point<Number>
void append(std::string& text, Number number) {
  char digits[32];
  text.append(digits, std::to_chars(digits, std::end(digits), number).ptr);
}
template <class F>
  requires std::invocable<const F&>
void append(std::string& text, const F& part) {
  text += part();
}

// Concatenates the parts.
template <class... Ts>
std::string cat(const Ts&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}

// Throws Error("[stablehlo.add] what").
[[noreturn]] void fail(std::string_view op, const std::string& what);

// Fails if `condition` is false. The message is built from `parts` only then.
template <class... Ts>
void check(bool condition, std::string_view op, const Ts&... parts) {
  if (!condition) fail(op, cat(parts...));
}

// Throws unless every entry is in [0, rank) and none occurs twice.
void check_dimensions(std::string_view op, std::string_view what, const Dims& dims, int64_t rank);
void check_same_type(std::string_view op, const Value& a, const Value& b);
Dims without(const Dims& dims, const Dims& removed);  // dims without these positions

struct Builder::Impl {
  struct Parameter {
    Type type;
    Dims order;
    int64_t alias = -1;
  };

  std::string module_name;
  int64_t replicas = 1;
  std::vector<Parameter> parameters;
  std::vector<std::string> names;                 // by Value::id
  std::map<int32_t, Moved> transposes;            // what each was transposed from
  std::map<int32_t, Value> transposed_arguments;  // in a function: the arguments that these transpose back
  // Values whose elements all equal one scalar that is known before the program runs; NaN if it is computed.
  std::map<int32_t, double> numbers;
  mutable bool of_numbers_only = true;  // about the operands used since the last op
  mutable int64_t operands_used = 0;
  bool writes = true;    // if false, nothing is written and names are empty, but ops are checked
  std::string text;      // of the block being written
  std::string location;  // " loc(…)" or ""
  int64_t indent = 2;    // levels
  int64_t ops = 0;
  std::map<std::string, std::string> functions;  // private functions: text by symbol
  bool composites_as_calls = false;
  // For the function being written: the number of its ops so far, and its first value.
  int64_t numbered = 0;
  size_t first_name = 0;

  Value name_value(const Type& type, std::string name);
  // Returns the operand's SSA name. Fails if the value belongs to another builder.
  const std::string& use(std::string_view op, const Value& value) const;
  std::string uses(std::string_view op, const Values& values) const;  // "%0, %1"
  template <class... Others>
  std::string uses(std::string_view op, const Value& first, const Others&... others) const {
    std::string text = use(op, first);
    ((text += ", ", text += use(op, others)), ...);
    return text;
  }

  // Writes `%n = `, the parts and the location. Names the results last, because parts may be names.
  template <class... Parts>
  Values emit(const std::vector<Type>& results, const Parts&... parts) {
    begin(results.size());
    if (writes) (append(text, parts), ...);
    return end(results);
  }
  template <class... Parts>
  Value emit(const Type& result, const Parts&... parts) {
    begin(1);
    if (writes) (append(text, parts), ...);
    return end(result);
  }
  // Likewise for an op that moves or repeats the elements of x.
  template <class... Parts>
  Value emit_moved(const Type& result, const Value& x, const Parts&... parts) {
    const auto number = numbers.find(x.id);
    Value moved = emit(result, parts...);
    if (number != numbers.end()) numbers[moved.id] = number->second;
    return moved;
  }
  void begin(size_t results);
  Values end(const std::vector<Type>& results);
  Value end(const Type& result);
  void end();
  // Returns x, behind a barrier if it is a scalar that may be 0 (either zero, or only -0.0).
  Value opaque_zero(const Value& x, bool only_negative);

  // Runs `region` with block arguments of these types and returns the text of "{ ^bb0(…): … return … }". check_results
  // gets the region's results.
  std::string region(std::string_view op, const std::vector<Type>& arguments, const Region& region,
                     const std::function<void(const Values&)>& check_results);
  // Likewise for a region whose results must have these types.
  std::string region(std::string_view op, const std::vector<Type>& arguments, const Region& body,
                     const std::vector<Type>& results);
  // Writes a private function and returns its symbol; `results` gets its result types.
  std::string function(std::string_view op, std::string_view name, const Values& operands, const Region& body,
                       std::vector<Type>& results);
  // Removes ops from the text starting at `begin` that these values don't need.
  void prune(size_t begin, const Values& needed);
};

}  // namespace tpjrt::hlo
