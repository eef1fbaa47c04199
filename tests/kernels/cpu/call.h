// One call of a handler, as XLA makes it, over memory that the processor guards.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xla/ffi/api/c_api.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/cpu/handlers.h"
#include "kernels/cpu/kept_call.h"

struct XLA_FFI_Error {
  std::string message;
};

namespace tpjrt::kernels::test {

// Memory that ends at a page without access: it stops libraries that handlers call and that aren't instrumented. So it
// may begin anywhere and is aligned only for its elements. Filled with NaN, or with -1.
class Fenced {
 public:
  explicit Fenced(size_t bytes) : page_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))) {
    size_ = (bytes + page_ - 1) / page_ * page_ + page_;
    void* start = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(start);
    ::mprotect(start_ + size_ - page_, page_, PROT_NONE);
    data_ = start_ + size_ - page_ - bytes;
    std::memset(data_, 0xFF, bytes);
  }
  ~Fenced() { ::munmap(start_, size_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  void* data() const { return data_; }

 private:
  size_t page_, size_;
  std::byte *start_, *data_;
};

inline XLA_FFI_DataType type_of(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kBool: return XLA_FFI_DataType_PRED;
    case at::kChar: return XLA_FFI_DataType_S8;
    case at::kInt: return XLA_FFI_DataType_S32;
    case at::kLong: return XLA_FFI_DataType_S64;
    case at::kHalf: return XLA_FFI_DataType_F16;
    case at::kBFloat16: return XLA_FFI_DataType_BF16;
    case at::kFloat: return XLA_FFI_DataType_F32;
    case at::kDouble: return XLA_FFI_DataType_F64;
    case at::kComplexDouble: return XLA_FFI_DataType_C128;
    default: return XLA_FFI_DataType_INVALID;
  }
}

inline const XLA_FFI_Api* api() {
  static const XLA_FFI_Api all = [] {
    XLA_FFI_Api given{};
    given.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    given.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
    given.XLA_FFI_Error_Create = [](XLA_FFI_Error_Create_Args* args) { return new XLA_FFI_Error{args->message}; };
    return given;
  }();
  return &all;
}

// Returns an NCHW tensor over memory in NHWC layout.
inline at::Tensor nhwc(const at::Tensor& images) {
  std::vector<int64_t> sizes = images.sizes().vec();
  sizes.erase(sizes.begin() + 1);
  sizes.push_back(images.size(1));
  return images.view(sizes).movedim(-1, 1);
}

using Ints = std::vector<int64_t>;
using Attribute = std::variant<bool, int64_t, double, std::string, Ints>;
using Attributes = std::map<std::string, Attribute>;

// Lives as long as the process.
inline graph::TypePtr type_like(const at::Tensor& x) {
  return new graph::TensorType{x.scalar_type(), graph::Sizes(x.sizes()), graph::Sizes(x.strides())};
}

inline OpCall::Argument operand(size_t i) { return {.operand = i}; }
inline OpCall::Argument given(c10::IValue constant) { return {.constant = std::move(constant)}; }

// Not thread-safe; several calls may run at once.
class Call {
 public:
  explicit Call(XLA_FFI_Handler* handler, Attributes attributes = {})
      : handler_(handler), attributes_(std::move(attributes)) {}

  // Adds an operand: row-major whatever its view; `images` in NHWC layout.
  Call& operand(const at::Tensor& values) {
    add(operands_, values.sizes(), values.scalar_type()).copy_(values);
    return *this;
  }
  Call& images(const at::Tensor& values) {
    nhwc(add(operands_, values.sizes(), values.scalar_type())).copy_(values);
    operands_.back().is_nhwc = true;
    return *this;
  }
  Call& result(c10::IntArrayRef sizes, c10::ScalarType dtype = at::kFloat) {
    add(results_, sizes, dtype);
    return *this;
  }
  Call& result_images(c10::IntArrayRef sizes, c10::ScalarType dtype = at::kFloat) {
    add(results_, sizes, dtype);
    results_.back().is_nhwc = true;
    return *this;
  }
  // Adds a result in the memory of this operand.
  Call& result_over(size_t operand) {
    results_.push_back(operands_.at(operand));
    return *this;
  }

  const at::Tensor& given(size_t i) const { return operands_.at(i).tensor; }
  const at::Tensor& got(size_t i = 0) const { return results_.at(i).tensor; }
  at::Tensor got_images(size_t i = 0) const { return nhwc(got(i)); }

  // Makes it a call of an op of PyTorch with these operands and results, as a rule does.
  // `writing`: the overload that writes to given tensors.
  Call& of(const char* name, std::vector<OpCall::Argument> arguments, std::vector<size_t> wanted = {0},
           const char* writing = nullptr) {
    static std::atomic<int> number;
    KeptCall kept{
        .arguments = types_of(operands_), .results = types_of(results_), .is_large = true, .may_throw = false};
    auto& all = c10::Dispatcher::singleton();
    OpCall op{.op = all.findSchemaOrThrow(name, ""), .arguments = std::move(arguments), .wanted = std::move(wanted)};
    if (writing) op.writing = all.findSchemaOrThrow(name, writing);
    kept.run = std::move(op);
    const std::string text = std::string(name) + " " + std::to_string(++number);
    keep_call(text, std::move(kept));
    attributes_[kAtenText] = text;
    return *this;
  }

  // Runs the handler. Returns its error; empty if it succeeded.
  std::string run() {
    Frame frame(*this);
    XLA_FFI_Error* error = handler_(&frame.made);
    std::string message = error == nullptr ? "" : error->message;
    delete error;
    return message;
  }

 private:
  struct Buffer {
    std::shared_ptr<Fenced> memory;
    at::Tensor tensor;
    bool is_nhwc = false;
  };

  static std::vector<graph::TypePtr> types_of(const std::vector<Buffer>& all) {
    std::vector<graph::TypePtr> types;
    for (const Buffer& buffer : all) types.push_back(type_like(buffer.is_nhwc ? nhwc(buffer.tensor) : buffer.tensor));
    return types;
  }

  static at::Tensor& add(std::vector<Buffer>& all, c10::IntArrayRef sizes, c10::ScalarType dtype) {
    const auto memory = std::make_shared<Fenced>(c10::multiply_integers(sizes) * c10::elementSize(dtype));
    all.push_back({memory, at::from_blob(memory->data(), sizes, dtype)});
    return all.back().tensor;
  }

  // The structs of one call, and the data that they point to.
  struct Frame {
    explicit Frame(const Call& call) {
      made.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
      made.api = api();
      made.stage = XLA_FFI_ExecutionStage_EXECUTE;
      for (const auto& buffer : call.operands_) arguments.push_back(add(buffer.tensor));
      for (const auto& buffer : call.results_) results.push_back(add(buffer.tensor));
      for (const auto& [name, value] : call.attributes_) add(name, value);
      argument_types.assign(arguments.size(), XLA_FFI_ArgType_BUFFER);
      result_types.assign(results.size(), XLA_FFI_RetType_BUFFER);
      const auto size = [](const auto& all) { return static_cast<int64_t>(all.size()); };
      made.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, size(arguments), argument_types.data(), arguments.data()};
      made.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, size(results), result_types.data(), results.data()};
      made.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, size(values), types.data(), names.data(), values.data()};
    }

    void* add(const at::Tensor& tensor) {
      buffers.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, type_of(tensor.scalar_type()), tensor.data_ptr(),
                         tensor.dim(), const_cast<int64_t*>(tensor.sizes().data())});
      return &buffers.back();
    }
    void add(const std::string& name, const Attribute& value) {
      spans.push_back({name.data(), name.size()});
      names.push_back(&spans.back());
      const auto scalar = [&](XLA_FFI_DataType type, const void* number) {
        scalars.push_back({type, const_cast<void*>(number)});
        types.push_back(XLA_FFI_AttrType_SCALAR);
        values.push_back(&scalars.back());
      };
      if (const auto* text = std::get_if<std::string>(&value)) {
        spans.push_back({text->data(), text->size()});
        types.push_back(XLA_FFI_AttrType_STRING);
        values.push_back(&spans.back());
      } else if (const auto* ints = std::get_if<Ints>(&value)) {
        arrays.push_back({XLA_FFI_DataType_S64, ints->size(), const_cast<int64_t*>(ints->data())});
        types.push_back(XLA_FFI_AttrType_ARRAY);
        values.push_back(&arrays.back());
      } else if (const auto* flag = std::get_if<bool>(&value)) {
        scalar(XLA_FFI_DataType_PRED, flag);
      } else if (const auto* number = std::get_if<int64_t>(&value)) {
        scalar(XLA_FFI_DataType_S64, number);
      } else {
        scalar(XLA_FFI_DataType_F64, &std::get<double>(value));
      }
    }

    XLA_FFI_CallFrame made{};
    std::deque<XLA_FFI_Buffer> buffers;
    std::deque<XLA_FFI_ByteSpan> spans;
    std::deque<XLA_FFI_Scalar> scalars;
    std::deque<XLA_FFI_Array> arrays;
    std::vector<void*> arguments, results, values;
    std::vector<XLA_FFI_ArgType> argument_types;
    std::vector<XLA_FFI_RetType> result_types;
    std::vector<XLA_FFI_AttrType> types;
    std::vector<XLA_FFI_ByteSpan*> names;
  };

  XLA_FFI_Handler* handler_;
  Attributes attributes_;
  std::vector<Buffer> operands_, results_;
};

// Returns true if the values differ by no more than roundings of that dtype and of the sum.
inline bool near(const at::Tensor& got, const at::Tensor& expected) {
  const bool narrow = got.element_size() < 4;
  return got.sizes() == expected.sizes() &&
         at::allclose(got.to(at::kDouble), expected.to(at::kDouble), narrow ? 2e-2 : 1e-4, narrow ? 5e-2 : 1e-4,
                      /*equal_nan=*/true);
}

}  // namespace tpjrt::kernels::test
