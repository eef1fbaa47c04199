// XLA's buffers as tensors, and the frame of a handler that computes with them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <xla/ffi/api/ffi.h>

namespace tpjrt::kernels {

// Returns a row-major tensor over the buffer's memory. Throws for a dtype that torch lacks.
at::Tensor tensor_over(const xla::ffi::AnyBuffer& buffer);

// Returns an NCHW tensor over memory in NHWC layout (Emit::Orders).
at::Tensor channels_last(const at::Tensor& images);

// The operands of a handler, and the results to write to. The tensors may not outlive the call.
struct Tensors {
  std::vector<at::Tensor> operands, results;
};
Tensors tensors_of(const xla::ffi::RemainingArgs& args, const xla::ffi::RemainingRets& rets);

// A handler that passes on its attributes. If `work` throws, the run fails with its message. `work` runs in any of
// XLA's threads, and decides itself what is worth a team (team.h). It sets modes such as autograd's itself.
template <void (*work)(const Tensors& tensors, const xla::ffi::Dictionary& attributes)>
XLA_FFI_Error* called(XLA_FFI_CallFrame* frame) {
  static auto* handler =
      xla::ffi::Ffi::Bind()
          .RemainingArgs()
          .RemainingRets()
          .Attrs()
          .To([](xla::ffi::RemainingArgs args, xla::ffi::RemainingRets rets, xla::ffi::Dictionary attributes) {
            try {
              work(tensors_of(args, rets), attributes);
            } catch (const c10::Error& error) {
              return xla::ffi::Error::Internal(error.what_without_backtrace());
            }
            return xla::ffi::Error::Success();
          })
          .release();
  return handler->Call(frame);
}

// Output forwarding for ATen's kernels that have no out= form: their results are written into existing memory.
//
// Note [Output forwarding]: a kernel that allocates its own result would need a copy into the program's buffer, or must
// be made to add to zeros there; for a convolution of bfloat16 that is a third of its time. Such kernels allocate
// results by PyTorch's CPU allocator. The first OutputForwarding of a process puts one before it
// (c10::SetCPUAllocator): while an OutputForwarding lives, its thread's first allocation of exactly the result's bytes
// gets the result's memory. Another tensor may take it, so give() checks where the result is and copies it if it is
// elsewhere. oneDNN's scratch memory may take it, too, by raw_allocate.

// For one result, dense in some order of its dimensions, and one thread. No other tensor of the kernel may outlive
// it.
class OutputForwarding {
 public:
  explicit OutputForwarding(const at::Tensor& place);
  ~OutputForwarding();
  OutputForwarding(const OutputForwarding&) = delete;
  OutputForwarding& operator=(const OutputForwarding&) = delete;

  // Copies the kernel's result to the memory, unless it is there already.
  void give(const at::Tensor& result) const;

 private:
  const at::Tensor& place_;
};

}  // namespace tpjrt::kernels
