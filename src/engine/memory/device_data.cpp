// The form of a buffer's memory: element types, dimensions in memory order, and leaves.
#include "engine/memory/device_data.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace tpjrt::engine {

PJRT_Buffer_Type buffer_type(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kBool: return PJRT_Buffer_Type_PRED;
    case c10::kChar: return PJRT_Buffer_Type_S8;
    case c10::kShort: return PJRT_Buffer_Type_S16;
    case c10::kInt: return PJRT_Buffer_Type_S32;
    case c10::kLong: return PJRT_Buffer_Type_S64;
    case c10::kByte: return PJRT_Buffer_Type_U8;
    case c10::kUInt16: return PJRT_Buffer_Type_U16;
    case c10::kUInt32: return PJRT_Buffer_Type_U32;
    case c10::kUInt64: return PJRT_Buffer_Type_U64;
    case c10::kHalf: return PJRT_Buffer_Type_F16;
    case c10::kBFloat16: return PJRT_Buffer_Type_BF16;
    case c10::kFloat: return PJRT_Buffer_Type_F32;
    case c10::kDouble: return PJRT_Buffer_Type_F64;
    case c10::kComplexFloat: return PJRT_Buffer_Type_C64;
    case c10::kComplexDouble: return PJRT_Buffer_Type_C128;
    case c10::kFloat8_e4m3fn: return PJRT_Buffer_Type_F8E4M3FN;
    case c10::kFloat8_e4m3fnuz: return PJRT_Buffer_Type_F8E4M3FNUZ;
    case c10::kFloat8_e5m2: return PJRT_Buffer_Type_F8E5M2;
    case c10::kFloat8_e5m2fnuz: return PJRT_Buffer_Type_F8E5M2FNUZ;
    case c10::kFloat8_e8m0fnu: return PJRT_Buffer_Type_F8E8M0FNU;
    default: TORCH_CHECK_NOT_IMPLEMENTED(false, "pjrt: dtype ", dtype, " has no counterpart in StableHLO");
  }
}

std::shared_ptr<const pjrt::BufferType> buffer_type(const graph::TensorType& type) {
  std::vector<int64_t> dims;
  for (const int64_t axis : type.memory_order()) dims.push_back(type.sizes[static_cast<size_t>(axis)]);
  return std::make_shared<const pjrt::BufferType>(buffer_type(type.dtype), std::move(dims));
}

bool checks_memory() {
  static const bool on = [] {
    const char* value = std::getenv("TORCH_PJRT_CHECK_MEMORY");
    return value && std::string_view(value) == "1";
  }();
  return on;
}

void assert_has_layout(const graph::TensorType& form, const at::Tensor& memory) {
  TORCH_INTERNAL_ASSERT(memory.scalar_type() == form.dtype && memory.sizes() == c10::IntArrayRef(form.sizes) &&
                            memory.strides() == c10::IntArrayRef(form.strides),
                        "memory of strides ", memory.strides(), " that is called ", graph::to_string(form));
}

graph::TypePtr form_of(const at::Tensor& dense) {
  TORCH_INTERNAL_ASSERT(dense.is_non_overlapping_and_dense(), "memory with gaps has no buffer's form");
  return graph::intern(dense.scalar_type(), dense.sizes(), dense.strides());
}

graph::NodePtr leaf_of(graph::TypePtr form, std::shared_ptr<pjrt::Buffer> buffer, bool borrowed) {
  if (C10_UNLIKELY(checks_memory())) {
    const auto wanted = buffer_type(*form);
    // A result may have its sizes as dimensions and the layout of its form (Note [NHWC layout]).
    const bool images = form->rank() >= 4 && c10::IntArrayRef(buffer->dims()) == c10::IntArrayRef(form->sizes);
    TORCH_INTERNAL_ASSERT(wanted->element_type == buffer->element_type() && (images || wanted->dims == buffer->dims()),
                          "a buffer whose memory does not have the layout of ", graph::to_string(*form), " says");
  }
  return graph::make_leaf(form, std::make_shared<DeviceData>(std::move(buffer), borrowed));
}

}  // namespace tpjrt::engine
