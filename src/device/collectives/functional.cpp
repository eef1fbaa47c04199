// PyTorch's functional collectives of the device's tensors, in a world.
//
// The kernels are boxed, because the last argument is a group's name in some versions of PyTorch, and a name or a
// group in others.
#include <ATen/core/stack.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "device/collectives/backend.h"
#include "device/collectives/collectives.h"

namespace tpjrt::device::world {

namespace {

using at::Tensor;

// The arguments of one call by name.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack) : schema_(op.schema()) {
    const size_t count = schema_.arguments().size();
    values_.assign(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  }
  const c10::IValue& operator[](std::string_view name) const {
    const auto index = schema_.argumentIndexWithName(name);
    TORCH_INTERNAL_ASSERT(index, schema_, " has no argument ", name);
    return values_[static_cast<size_t>(*index)];
  }
  const c10::IValue& first() const { return values_[0]; }
  bool has(std::string_view name) const { return schema_.argumentIndexWithName(name).has_value(); }
  Groups groups() const {
    const c10::IValue& group = (*this)["group_name"];
    Groups groups =
        group.isString() ? groups_of(group.toStringRef()) : groups_of(*group.toCustomClass<c10d::ProcessGroup>());
    if (has("group_size")) {
      const int64_t reported = (*this)["group_size"].toInt();
      TORCH_CHECK_VALUE(reported == groups.size, schema_.name(), ": group_size is ", reported, ", of a group of ",
                        groups.size);
    }
    return groups;
  }

 private:
  const c10::FunctionSchema& schema_;
  std::vector<c10::IValue> values_;
};

using Collective = Tensor (*)(const Arguments&, const Tensor&, const Groups&);

Tensor reduce_all(const Arguments& given, const Tensor& input, const Groups& groups) {
  return all_reduce(input, given["reduce_op"].toStringRef(), groups);
}
Tensor gather(const Arguments& /*given*/, const Tensor& input, const Groups& groups) {
  return all_gather(input, groups);
}
Tensor scatter(const Arguments& given, const Tensor& input, const Groups& groups) {
  return reduce_scatter(input, given["reduce_op"].toStringRef(), groups);
}
Tensor exchange(const Arguments& given, const Tensor& input, const Groups& groups) {
  check_equal_parts(given["output_split_sizes"].toIntVector());
  check_equal_parts(given["input_split_sizes"].toIntVector());
  return all_to_all(input, groups);
}
Tensor send_to_all(const Arguments& given, const Tensor& input, const Groups& groups) {
  return broadcast(input, given["src"].toInt(), groups);
}
// Splits one dimension among the group and joins along another.
Tensor reshard(const Arguments& given, const Tensor& input, const Groups& groups) {
  const int64_t from = given["shard_dim"].toInt(), to = given["gather_dim"].toInt();
  TORCH_CHECK_NOT_IMPLEMENTED(input.size(from) % groups.size == 0, "redistribute: dimension ", from, " of ",
                              input.size(from), " doesn't divide among ", groups.size,
                              " ranks; a world in one process has shards of one size");
  const Tensor parts = at::stack(input.chunk(groups.size, from));
  return at::cat(all_to_all(parts, groups).unbind(0), to).contiguous();
}

// Runs a collective on one tensor, or on each in a list; into an `out`, or in place.
template <Collective collective, bool in_place = false>
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments given(op, *stack);
  const Groups groups = given.groups();
  const auto one = [&](Tensor input) {
    const Tensor result = collective(given, input, groups);
    return in_place ? input.copy_(result) : result;
  };
  c10::IValue result;
  if (given.first().isTensorList()) {
    std::vector<Tensor> results;
    for (const Tensor& input : given.first().toTensorVector()) results.push_back(one(input));
    result = std::move(results);
  } else {
    result = one(given.first().toTensor());
    if (given.has("out")) result = given["out"].toTensor().copy_(result.toTensor());
  }
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->push_back(std::move(result));
}

// Does nothing: the program runs in the order of the graph.
void wait_tensor(const c10::OperatorHandle& /*op*/, torch::jit::Stack* /*stack*/) {}

}  // namespace

void take_functional_collectives() {
  static const auto* const libraries = [] {
    using torch::CppFunction;
    auto* made = new std::vector<torch::Library>;
    const auto of = [&](const char* name) -> torch::Library& {
      return made->emplace_back(torch::Library::IMPL, name, c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    };
    torch::Library& c10d = of("_c10d_functional");
    const auto implement = [&](const char* name, CppFunction kernel) { c10d.impl(name, std::move(kernel)); };
    implement("all_reduce", CppFunction::makeFromBoxedFunction<&run<reduce_all>>());
    implement("all_reduce_", CppFunction::makeFromBoxedFunction<&run<reduce_all, true>>());
    implement("all_reduce_coalesced", CppFunction::makeFromBoxedFunction<&run<reduce_all>>());
    implement("all_reduce_coalesced_", CppFunction::makeFromBoxedFunction<&run<reduce_all, true>>());
    implement("all_gather_into_tensor", CppFunction::makeFromBoxedFunction<&run<gather>>());
    implement("all_gather_into_tensor_out", CppFunction::makeFromBoxedFunction<&run<gather>>());
    implement("all_gather_into_tensor_coalesced", CppFunction::makeFromBoxedFunction<&run<gather>>());
    implement("reduce_scatter_tensor", CppFunction::makeFromBoxedFunction<&run<scatter>>());
    implement("reduce_scatter_tensor_coalesced", CppFunction::makeFromBoxedFunction<&run<scatter>>());
    implement("all_to_all_single", CppFunction::makeFromBoxedFunction<&run<exchange>>());
    implement("broadcast", CppFunction::makeFromBoxedFunction<&run<send_to_all>>());
    implement("broadcast_", CppFunction::makeFromBoxedFunction<&run<send_to_all, true>>());
    implement("wait_tensor", CppFunction::makeFromBoxedFunction<&wait_tensor>());
    of("_dtensor").impl("shard_dim_alltoall", CppFunction::makeFromBoxedFunction<&run<reshard>>());
    return made;
  }();
  (void)libraries;
}

}  // namespace tpjrt::device::world
