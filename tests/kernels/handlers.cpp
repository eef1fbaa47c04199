// Handlers of XLA's FFI that the tests register: a separate library, compiled when they run.
#include <xla/ffi/api/ffi.h>

#include <stdexcept>
#include <string_view>

namespace ffi = xla::ffi;

using F32 = ffi::Buffer<ffi::F32>;
using ResultF32 = ffi::ResultBuffer<ffi::F32>;

static ffi::Error twice(F32 x, ResultF32 y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = 2 * x.typed_data()[i];
  return ffi::Error::Success();
}

static ffi::Error by_attributes(F32 x, std::string_view approximate, ResultF32 y) {
  const float factor = approximate == "tanh" ? 3 : 2;
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = factor * x.typed_data()[i];
  return ffi::Error::Success();
}

// Takes attributes of all kinds, and has two results.
static ffi::Error of_all_kinds(F32 x, bool flag, int64_t count, double factor, ffi::Span<const int64_t> sizes,
                               ffi::Span<const double> weights, ResultF32 y, ffi::ResultBuffer<ffi::S64> numbers) {
  for (size_t i = 0; i < x.element_count(); ++i) {
    y->typed_data()[i] = static_cast<float>(factor * weights[0]) * x.typed_data()[i];
  }
  numbers->typed_data()[0] = flag ? count : -count;
  numbers->typed_data()[1] = sizes[0] + sizes[1];
  return ffi::Error::Success();
}

// Returns each element's index in memory.
static ffi::Error places(F32 x, ResultF32 y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = static_cast<float>(i);
  return ffi::Error::Success();
}

// Returns 1 if the result is in the operand's memory.
static ffi::Error is_in_place(F32 x, ResultF32 y) {
  const float same = x.typed_data() == y->typed_data() ? 1 : 0;
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = same;
  return ffi::Error::Success();
}

static ffi::Error fails(F32 /*x*/, ResultF32 /*y*/) { return ffi::Error::InvalidArgument("no luck today"); }
static ffi::Error throws(F32 /*x*/, ResultF32 /*y*/) { throw std::runtime_error("out of its hands"); }

static auto binding() { return ffi::Ffi::Bind().Arg<F32>(); }
static auto with_approximate() { return binding().Attr<std::string_view>("approximate").Ret<F32>(); }
static auto any() { return ffi::Ffi::Bind().Arg<F32>().Ret<F32>(); }

XLA_FFI_DEFINE_HANDLER_SYMBOL(test_twice, twice, any());
XLA_FFI_DEFINE_HANDLER_SYMBOL(test_by_attributes, by_attributes, with_approximate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(test_of_all_kinds, of_all_kinds,
                              binding()
                                  .Attr<bool>("flag")
                                  .Attr<int64_t>("count")
                                  .Attr<double>("factor")
                                  .Attr<ffi::Span<const int64_t>>("sizes")
                                  .Attr<ffi::Span<const double>>("weights")
                                  .Ret<F32>()
                                  .Ret<ffi::Buffer<ffi::S64>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(test_places, places, any());
XLA_FFI_DEFINE_HANDLER_SYMBOL(test_is_in_place, is_in_place, any());
XLA_FFI_DEFINE_HANDLER_SYMBOL(test_fails, fails, any());
XLA_FFI_DEFINE_HANDLER_SYMBOL(test_throws, throws, any());

// Reports another interface version, like handlers for later versions of XLA.
static XLA_FFI_Error* tell(XLA_FFI_CallFrame* frame, int major, int minor) {
  auto* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)->metadata;
  metadata->api_version.major_version = major;
  metadata->api_version.minor_version = minor;
  return nullptr;
}
extern "C" XLA_FFI_Error* test_of_next_year(XLA_FFI_CallFrame* frame) { return tell(frame, 0, 99); }
extern "C" XLA_FFI_Error* test_of_tomorrow(XLA_FFI_CallFrame* frame) { return tell(frame, 9, 1); }
