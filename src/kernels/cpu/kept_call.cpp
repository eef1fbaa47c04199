// The handler that runs PyTorch's CPU kernels, and the table of calls.
#include "kernels/cpu/kept_call.h"

#include <ATen/ops/conj_physical.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <xla/ffi/api/ffi.h>

#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "kernels/cpu/handlers.h"
#include "kernels/cpu/output_forwarding.h"
#include "kernels/cpu/team.h"

namespace tpjrt::kernels {
namespace {

namespace ffi = xla::ffi;

constexpr size_t kMostThrown = 64;  // kept until raised; beyond that, the oldest are dropped

// Texts are looked up without a copy.
struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};

struct Calls {
  std::mutex lock;
  std::unordered_map<std::string, const KeptCall, TextHash, std::equal_to<>> by_text;
  std::map<int64_t, std::exception_ptr> thrown;
  int64_t last = 0;
};
Calls& calls() {
  static auto* all = new Calls;
  return *all;
}

// Returns a call that lives as long as the process, or null.
const KeptCall* find(std::string_view text) {
  const std::lock_guard guard(calls().lock);
  const auto found = calls().by_text.find(text);
  return found == calls().by_text.end() ? nullptr : &found->second;
}

int64_t keep_thrown(std::exception_ptr error) {
  const std::lock_guard guard(calls().lock);
  calls().thrown.emplace(++calls().last, std::move(error));
  if (calls().thrown.size() > kMostThrown) calls().thrown.erase(calls().thrown.begin());
  return calls().last;
}

at::Tensor over(void* data, graph::TypePtr type) {
  return at::from_blob(data, type->sizes, type->strides, at::TensorOptions(c10::kCPU).dtype(type->dtype));
}

void run_on(const KeptCall& call, const std::vector<at::Tensor>& arguments, std::vector<at::Tensor>& results) {
  const c10::InferenceMode inference;
  const std::vector<at::Tensor> given = call.run(arguments, results);
  TORCH_CHECK(given.size() == results.size(), "the kernel gives ", given.size(), " tensors, its Meta kernel ",
              results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    TORCH_CHECK(given[i].sizes() == results[i].sizes(), "the kernel's result ", i, " has sizes ", given[i].sizes(),
                ", its Meta kernel's ", results[i].sizes());
    if (!given[i].is_same(results[i])) results[i].copy_(given[i]);
    // ATen leaves the conjugation to the reader (lu_solve from the right does); memory alone doesn't show it.
    if (results[i].is_conj()) {
      results[i]._set_conj(false);
      results[i].conj_physical_();
    }
  }
}

ffi::Error call_of(ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view text) {
  const KeptCall* const call = find(text);
  if (!call || args.size() != call->arguments.size() || rets.size() != call->results.size() + call->may_throw) {
    return ffi::Error::Internal("torch_pjrt knows no call '" + std::string(text) + "'");
  }
  const c10::InferenceMode inference;
  std::vector<at::Tensor> arguments, results;
  for (size_t i = 0; i < args.size(); ++i) {
    arguments.push_back(over(args.get<ffi::AnyBuffer>(i)->untyped_data(), call->arguments[i]));
  }
  for (size_t i = 0; i < call->results.size(); ++i) {
    results.push_back(over((*rets.get<ffi::AnyBuffer>(i))->untyped_data(), call->results[i]));
  }
  int64_t number = 0;
  try {
    compute(call->is_large, [&] { run_on(*call, arguments, results); });
  } catch (const std::exception& error) {
    if (!call->may_throw) {
      const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
      return ffi::Error::Internal(of_torch ? of_torch->what_without_backtrace() : error.what());
    }
    number = keep_thrown(std::current_exception());
    for (at::Tensor& result : results) {  // a loop's body asserts nothing
      if (result.is_floating_point() || result.is_complex()) {
        result.fill_(std::numeric_limits<double>::quiet_NaN());
      } else {
        result.zero_();
      }
    }
  }
  if (!call->may_throw) return ffi::Error::Success();
  *static_cast<int64_t*>((*rets.get<ffi::AnyBuffer>(results.size()))->untyped_data()) = number;
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_Error* aten_call(XLA_FFI_CallFrame* frame) {
  static auto* handler =
      ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<std::string_view>(kAtenText).To(call_of).release();
  return handler->Call(frame);
}

std::vector<at::Tensor> OpCall::operator()(const std::vector<at::Tensor>& operands,
                                           const std::vector<at::Tensor>& places) const {
  torch::jit::Stack stack;
  for (const Argument& argument : arguments) {
    if (!argument.operand && !argument.place) {
      stack.push_back(argument.constant);
      continue;
    }
    const at::Tensor& given = argument.operand ? operands.at(*argument.operand) : places.at(*argument.place);
    stack.emplace_back(argument.is_copied ? given.contiguous() : given);
  }
  if (writing) {
    stack.insert(stack.end(), places.begin(), places.end());
    writing->callBoxed(stack);
    return places;
  }
  const OutputForwarding forwarding(places.at(0));
  op.callBoxed(stack);
  std::vector<at::Tensor> results;
  for (const size_t i : wanted) results.push_back(stack.at(i).toTensor());
  for (size_t i = 1; i < results.size(); ++i) {
    if (results[i].const_data_ptr() == places[0].const_data_ptr()) results[i] = results[i].clone();
  }
  forwarding.give(results[0]);
  results[0] = places[0];
  return results;
}

void keep_call(const std::string& text, KeptCall call) {
  const std::lock_guard guard(calls().lock);
  calls().by_text.try_emplace(text, std::move(call));
}

std::exception_ptr thrown(int64_t number) {
  const std::lock_guard guard(calls().lock);
  const auto found = calls().thrown.find(number);
  if (found != calls().thrown.end()) return found->second;
  return std::make_exception_ptr(std::runtime_error("a kernel of PyTorch's raised, and much was raised after it"));
}

}  // namespace tpjrt::kernels
