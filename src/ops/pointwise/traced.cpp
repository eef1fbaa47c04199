// Traces scalar functions along each of their paths.
#include "ops/pointwise/traced.h"

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace tpjrt::ops {
namespace {

constexpr int kIterations = 24;  // iterations of a loop that ends by a tolerance: enough for these functions in f64

// A comparison of an expression with a number.
struct Question {
  hlo::Comparison comparison;
  int index;
  double number;

  bool operator==(const Question&) const = default;
};

struct Trace {
  Emit* e;
  Type type;
  std::deque<Expression> expressions;
  std::vector<bool> answers;          // the path that is taken
  std::vector<Expression> questions;  // the questions asked on it
  int iterations = 0;
  std::vector<std::pair<Question, bool>> asked;
  std::map<int, int> negatives;  // an expression -> the one that it is the negative of
};
thread_local Trace* trace = nullptr;

bool of_numbers(hlo::Comparison comparison, double a, double b) {
  switch (comparison) {
    case hlo::Comparison::kLt: return a < b;
    case hlo::Comparison::kLe: return a <= b;
    case hlo::Comparison::kGt: return a > b;
    case hlo::Comparison::kGe: return a >= b;
    case hlo::Comparison::kEq: return a == b;
    case hlo::Comparison::kNe: break;
  }
  return a != b;
}

// Returns the result of the paths that begin with these answers.
Expression from(const std::vector<bool>& answers, const std::function<Traced()>& function) {
  trace->answers = answers;
  trace->questions.clear();
  trace->iterations = 0;
  trace->asked.clear();
  Expression result = function().expression();
  const std::vector<Expression> questions = trace->questions;
  for (size_t i = questions.size(); i > answers.size(); --i) {
    std::vector<bool> other = answers;
    other.resize(i, true);
    other.back() = false;
    result = where(questions[i - 1], result, from(other, function));
  }
  return result;
}

}  // namespace

Traced Traced::of(const Expression& x) {
  Traced traced;
  trace->expressions.push_back(x);
  traced.index_ = static_cast<int>(trace->expressions.size()) - 1;
  return traced;
}

Expression Traced::expression() const {
  if (!is_known()) return trace->expressions[static_cast<size_t>(index_)];
  return {trace->e, trace->e->constant(number_, trace->type)};
}

bool holds(hlo::Comparison comparison, const Traced& a, const Traced& b) {
  if (a.is_tolerance() || b.is_tolerance()) return trace->iterations++ < kIterations;
  if (a.is_known() && b.is_known()) return of_numbers(comparison, a.number(), b.number());
  const Question question{comparison, a.index(), b.number()};
  const bool is_usual = !a.is_known() && b.is_known();
  const auto answered = [&](const Question& before) {
    for (const auto& [asked, answer] : trace->asked) {
      if (asked == before) return std::optional(answer);
    }
    return std::optional<bool>();
  };
  if (is_usual) {
    if (const auto known = answered(question)) return *known;
    const auto positive = trace->negatives.find(a.index());
    const bool of_zero = comparison == hlo::Comparison::kLt && b.number() == 0;
    if (of_zero && positive != trace->negatives.end()) {
      if (answered({comparison, positive->second, 0}).value_or(false)) return false;
    }
  }
  const size_t at = trace->questions.size();
  trace->questions.push_back(a.expression().apply(comparison, b.expression()));
  const bool answer = at >= trace->answers.size() || trace->answers[at];
  if (is_usual) trace->asked.emplace_back(question, answer);
  return answer;
}

Traced negated(const Traced& x) {
  if (x.is_known()) return -x.number();
  const Traced y = Traced::of(-x.expression());
  trace->negatives.emplace(y.index(), x.index());
  return y;
}

Expression traced(const Expression& like, const std::function<Traced()>& function) {
  Trace mine{like.e, like.value.type, {}, {}, {}, 0, {}, {}};
  trace = &mine;
  struct End {
    ~End() { trace = nullptr; }
  } end;
  return from({}, function);
}

Traced unary(std::string_view op, const Traced& x, double (*known)(double)) {
  if (x.is_known()) return known(x.number());
  const Expression y = x.expression();
  if (op == "cosine") return Traced::of(cosine(y));
  if (op == "sine") return Traced::of(sine(y));
  return Traced::of(y.unary(op));
}

Traced power(const Traced& x, const Traced& y) {
  if (x.is_known() && y.is_known()) return std::pow(x.number(), y.number());
  return Traced::of(x.expression().apply("power", y.expression()));
}

}  // namespace tpjrt::ops
