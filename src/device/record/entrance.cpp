// The recorder's entry points: the boxed kernel, and entrances for the commonest C++ signatures.
//
// Note [Entrances]: boxing a call copies its tensors into the stack. That allocates, and takes and releases the GIL
// for each tensor that Python holds (from torch 2.13 on, a tensor's second reference also holds its Python object).
// An entrance flattens the arguments in place. It is specific to a signature, not to an op: schemas say which
// overloads it serves. A call without a plan, or with an unusual argument, goes through the boxed kernel.
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/infer_schema.h>
#include <c10/util/flat_hash_map.h>

#include <functional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "device/aten_call/meta.h"
#include "device/record/recorder.h"
#include "device/services/modes.h"

namespace tpjrt::device {
namespace {

class Recorder final : public c10::OperatorKernel {
 public:
  explicit Recorder(const Operator& op) : operator_(op) {}
  void operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    record(operator_, *stack);
  }

 private:
  const Operator& operator_;
};

void record_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static thread_local ska::flat_hash_map<const c10::FunctionSchema*, const Operator*> known;
  const Operator*& entry = known[&op.schema()];
  if (!entry) entry = &Operator::of(op);
  record(*entry, *stack);
}

template <class Result>
struct Returned {
  static constexpr Plan::Shape kShape = Plan::Shape::kArguments;
};
template <>
struct Returned<at::Tensor> {
  static constexpr Plan::Shape kShape = Plan::Shape::kFresh;
  static at::Tensor take(Results& results) { return std::move(results[0]); }
};
template <>
struct Returned<std::vector<at::Tensor>> {
  static constexpr Plan::Shape kShape = Plan::Shape::kFreshList;
  static std::vector<at::Tensor> take(Results& results) {
    return {std::make_move_iterator(results.begin()), std::make_move_iterator(results.end())};
  }
};
template <class... Tensors>
struct Returned<std::tuple<Tensors...>> {
  static constexpr Plan::Shape kShape = Plan::Shape::kFresh;
  static std::tuple<Tensors...> take(Results& results) { return take(results, std::index_sequence_for<Tensors...>()); }
  template <size_t... I>
  static std::tuple<Tensors...> take(Results& results, std::index_sequence<I...> /*unused*/) {
    return {std::move(results[I])...};
  }
};

// Returns the one argument that an in-place or out= op writes and hands back.
at::Tensor& written(at::Tensor& tensor, const auto&... /*rest*/) { return tensor; }
at::Tensor& written(const auto& /*first*/, auto&... rest) { return written(rest...); }

template <class Result, class... Args>
class Entrance final : public c10::OperatorKernel {
 public:
  explicit Entrance(const Operator& op)
      : operator_(op), boxed_(c10::BoxedKernel::makeFromFunctor(std::make_unique<Recorder>(op))) {}

  Result operator()(c10::DispatchKeySet keys, Args... args) {
    using Return = Returned<Result>;
    Results results;
    if (C10_LIKELY(!outlining() && enter_with<Return::kShape>(results, args...))) {
      if constexpr (Return::kShape != Plan::Shape::kArguments) {
        return Return::take(results);
      } else if constexpr (std::is_void_v<Result>) {
        return;
      } else {
        return written(args...);
      }
    }
    return c10::impl::BoxedKernelWrapper<Result(Args...)>::call(boxed_, operator_.op, keys,
                                                                std::forward<Args>(args)...);
  }

  // Records a call that arrives boxed.
  void enter(torch::jit::Stack& stack) const { record(operator_, stack); }

 private:
  template <Plan::Shape shape>
  bool enter_with(Results& results, const auto&... args) {
    RecordTimer timer;
    Arguments arguments;
    Flattener flattener(operator_, arguments);
    (flattener.add(args), ...);
    const bool known = !flattener.odd() && record_known(operator_, arguments, shape, timer, results);
    if (!known) timer.drop();  // the boxed kernel starts again
    return known;
  }

  const Operator& operator_;
  c10::BoxedKernel boxed_;
};

}  // namespace
}  // namespace tpjrt::device

// Replaces PyTorch's way, which unboxes the call, and takes a second of compile time for every few signatures.
template <class Result, class... Args>
struct c10::impl::make_boxed_from_unboxed_functor<tpjrt::device::Entrance<Result, Args...>, false> final {
  static void call(OperatorKernel* kernel, const OperatorHandle& /*op*/, DispatchKeySet /*keys*/,
                   torch::jit::Stack* stack) {
    static_cast<tpjrt::device::Entrance<Result, Args...>*>(kernel)->enter(*stack);
  }
};

namespace tpjrt::device {
namespace {

struct Maker {
  c10::KernelFunction (*make)(const Operator& op);
  c10::impl::CppSignature signature;
};

// Returns the types of a schema as text; "!" marks a tensor that is written. No size is symbolic at this level.
// real_type() is used because type() says int for a dtype.
std::string in_words(const c10::FunctionSchema& schema, const std::function<bool(size_t)>& is_written) {
  std::string text;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    text += schema.arguments()[i].real_type()->str() + (is_written(i) ? "!, " : ", ");
  }
  text += "-> ";
  for (const auto& result : schema.returns()) text += result.real_type()->str() + ", ";
  for (size_t at = text.find("SymInt"); at != text.npos; at = text.find("SymInt")) text.replace(at, 6, "int");
  return text;
}

using Makers = std::unordered_map<std::string, Maker>;

template <class Result, class... Args>
void add(Makers& makers) {
  const bool is_written[] = {std::is_same_v<Args, at::Tensor&>...};
  const auto schema = c10::inferFunctionSchemaFlattenedReturns<Result(Args...)>();
  const auto make = [](const Operator& op) {
    return c10::KernelFunction::makeFromUnboxedFunctor<false, Entrance<Result, Args...>>(
        std::make_unique<Entrance<Result, Args...>>(op));
  };
  makers.emplace(in_words(schema, [&](size_t i) { return is_written[i]; }),
                 Maker{make, c10::impl::CppSignature::make<Result(Args...)>()});
}

Makers all_entrances() {
  using Tensor = const at::Tensor&;
  using Maybe = const std::optional<at::Tensor>&;
  using Written = at::Tensor&;
  using Scalar = const c10::Scalar&;
  using List = at::TensorList;
  using Scalars = at::ArrayRef<c10::Scalar>;
  using Ints = c10::IntArrayRef;
  using Two = std::tuple<at::Tensor, at::Tensor>;
  using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  using Dtype = std::optional<c10::ScalarType>;
  using Mask = std::array<bool, 3>;
  Makers m;
  // Elementwise, matrix products, comparisons.
  add<at::Tensor, Tensor>(m);
  add<at::Tensor, Tensor, Tensor>(m);
  add<at::Tensor, Tensor, Tensor, Tensor>(m);
  add<at::Tensor, Tensor, Scalar>(m);
  add<at::Tensor, Tensor, Scalar, Scalar>(m);
  add<at::Tensor, Tensor, Tensor, Scalar>(m);
  add<at::Tensor, Tensor, Tensor, Tensor, Scalar>(m);
  add<at::Tensor, Tensor, Tensor, Tensor, Scalar, Scalar>(m);
  add<at::Tensor, Tensor, Tensor, Maybe>(m);
  add<at::Tensor, Tensor, std::string_view>(m);
  add<at::Tensor, Tensor, Tensor, std::string_view>(m);
  add<Three, Tensor, Tensor, Tensor, Mask>(m);
  // In-place forms.
  add<at::Tensor&, Written>(m);
  add<at::Tensor&, Written, Tensor>(m);
  add<at::Tensor&, Written, Scalar>(m);
  add<at::Tensor&, Written, Scalar, Scalar>(m);
  add<at::Tensor&, Written, Tensor, Scalar>(m);
  add<at::Tensor&, Written, Tensor, Tensor>(m);
  add<at::Tensor&, Written, Tensor, Tensor, Scalar>(m);
  // Reductions, softmax, normalization, dropout, embedding.
  add<at::Tensor, Tensor, Dtype>(m);
  add<at::Tensor, Tensor, at::OptionalIntArrayRef, bool, Dtype>(m);
  add<at::Tensor, Tensor, Ints, bool>(m);
  add<at::Tensor, Tensor, int64_t, bool>(m);
  add<at::Tensor, Tensor, Tensor, int64_t, c10::ScalarType>(m);
  add<Three, Tensor, Ints, Maybe, Maybe, double>(m);
  add<Three, Tensor, Tensor, Ints, Tensor, Tensor, Maybe, Maybe, Mask>(m);
  add<Three, Tensor, Maybe, Maybe, Maybe, Maybe, bool, double, double>(m);
  add<Three, Tensor, Tensor, Maybe, Maybe, Maybe, Maybe, Maybe, bool, double, Mask>(m);
  add<Two, Tensor, double, std::optional<bool>>(m);
  add<at::Tensor, Tensor, Tensor, int64_t, bool, bool>(m);
  add<at::Tensor, Tensor, Tensor, int64_t, int64_t, bool>(m);
  // Convolution.
  add<at::Tensor, Tensor, Tensor, Maybe, Ints, Ints, Ints, bool, Ints, int64_t>(m);
  add<Three, Tensor, Tensor, Tensor, at::OptionalIntArrayRef, Ints, Ints, Ints, bool, Ints, int64_t, Mask>(m);
  // Lists of tensors: optimizers.
  add<void, List>(m);
  add<void, List, Scalar>(m);
  add<void, List, Tensor>(m);
  add<void, List, Scalars>(m);
  add<void, List, List>(m);
  add<void, List, List, Scalar>(m);
  add<void, List, List, Scalars>(m);
  add<void, List, List, List, Scalar>(m);
  add<void, List, List, List, Scalars>(m);
  add<std::vector<at::Tensor>, List>(m);
  add<std::vector<at::Tensor>, List, Scalar>(m);
  add<std::vector<at::Tensor>, List, Tensor>(m);
  add<std::vector<at::Tensor>, List, List>(m);
  add<std::vector<at::Tensor>, List, List, Scalar>(m);
  return m;
}

}  // namespace

void register_recorder() {
  auto& dispatcher = c10::Dispatcher::singleton();
  static auto* registrations = new std::vector<c10::RegistrationHandleRAII>;
  registrations->push_back(dispatcher.registerFallback(c10::DispatchKey::PrivateUse1,
                                                       c10::KernelFunction::makeFromBoxedFunction<&record_fallback>(),
                                                       "torch_pjrt recorder"));
  const Makers entrances = all_entrances();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto handle = dispatcher.findSchema(name);
    if (!handle) continue;
    const Boxing how = boxing(*handle);
    if (how != Boxing::kRecord && how != Boxing::kFallback) continue;
    const auto& schema = handle->schema();
    const auto entrance = entrances.find(in_words(schema, [&](size_t i) {
      const auto& argument = schema.arguments()[i];
      return argument.type()->kind() == c10::TypeKind::TensorType && argument.alias_info() &&
             argument.alias_info()->isWrite();
    }));
    const Operator& op = Operator::of(*handle);
    const auto enter = [&](c10::KernelFunction kernel, std::optional<c10::impl::CppSignature> signature) {
      registrations->push_back(dispatcher.registerImpl(name, c10::DispatchKey::PrivateUse1, std::move(kernel),
                                                       std::move(signature), nullptr, "torch_pjrt recorder"));
    };
    if (entrance != entrances.end()) {
      try {
        enter(entrance->second.make(op), entrance->second.signature);
        continue;
      } catch (const c10::Error&) {
        // Some kernels take these types in another C++ form (ITensorListRef).
      }
    }
    if (how == Boxing::kRecord) {
      enter(c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Recorder>(op)), std::nullopt);
    }
  }
}

}  // namespace tpjrt::device
