// Tensors on the host and on devices.
#include "runner/tensor.h"

#include <cstring>
#include <utility>

#include "file/mapping.h"
#include "file/tensors.h"

namespace tpjrt::runner {
namespace {

size_t checked_size(DType dtype, const Shape& shape) {
  const auto size = file::size_of(dtype, shape);
  if (!size) throw torch_pjrt::Error("a tensor of shape " + type_text(dtype, shape) + " can't be");
  return *size;
}

}  // namespace

PJRT_Buffer_Type buffer_type(DType dtype) {
  switch (dtype) {
    case DType::kBool: return PJRT_Buffer_Type_PRED;
    case DType::kInt8: return PJRT_Buffer_Type_S8;
    case DType::kInt16: return PJRT_Buffer_Type_S16;
    case DType::kInt32: return PJRT_Buffer_Type_S32;
    case DType::kInt64: return PJRT_Buffer_Type_S64;
    case DType::kUInt8: return PJRT_Buffer_Type_U8;
    case DType::kUInt16: return PJRT_Buffer_Type_U16;
    case DType::kUInt32: return PJRT_Buffer_Type_U32;
    case DType::kUInt64: return PJRT_Buffer_Type_U64;
    case DType::kFloat16: return PJRT_Buffer_Type_F16;
    case DType::kBFloat16: return PJRT_Buffer_Type_BF16;
    case DType::kFloat32: return PJRT_Buffer_Type_F32;
    case DType::kFloat64: return PJRT_Buffer_Type_F64;
    case DType::kComplex64: return PJRT_Buffer_Type_C64;
    case DType::kFloat8E4M3FN: return PJRT_Buffer_Type_F8E4M3FN;
    case DType::kFloat8E5M2: return PJRT_Buffer_Type_F8E5M2;
    case DType::kFloat8E4M3FNUZ: return PJRT_Buffer_Type_F8E4M3FNUZ;
    case DType::kFloat8E5M2FNUZ: return PJRT_Buffer_Type_F8E5M2FNUZ;
    case DType::kFloat8E8M0FNU: return PJRT_Buffer_Type_F8E8M0FNU;
  }
  return PJRT_Buffer_Type_INVALID;
}

std::string type_text(DType dtype, const Shape& shape) {
  std::string text(torch_pjrt::name(dtype));
  text += "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Tensor on_host(DType dtype, Shape shape, const void* data, std::shared_ptr<const void> owner) {
  auto inside = std::make_shared<Tensor::Data>();
  inside->dtype = dtype;
  inside->nbytes = checked_size(dtype, shape);
  inside->shape = std::move(shape);
  inside->host = data;
  inside->owner = std::move(owner);
  return Tensor(std::move(inside));
}

Tensor on_device(DType dtype, const Shape& shape, std::shared_ptr<pjrt::Buffer> buffer) {
  auto inside = std::make_shared<Tensor::Data>();
  inside->dtype = dtype;
  inside->shape = shape;
  inside->nbytes = buffer->size_in_bytes();
  inside->buffer = std::move(buffer);
  return Tensor(std::move(inside));
}

void rethrow(const std::string& where) {
  const std::string before = where.empty() ? "" : where + ": ";
  try {
    throw;
  } catch (const torch_pjrt::Error&) {
    throw;
  } catch (const pjrt::Error& error) {
    if (error.is_out_of_memory()) {
      throw torch_pjrt::OutOfMemory(before + "the device is out of memory: " + error.what() +
                                    ". Give smaller inputs, or let go of results and of other programs");
    }
    throw torch_pjrt::Error(before + error.what());
  } catch (const pjrt::PluginError& error) {
    throw torch_pjrt::Error(before + error.what());
  } catch (const file::Error& error) {
    throw torch_pjrt::Error(before + error.what());
  } catch (const std::bad_alloc&) {
    throw torch_pjrt::OutOfMemory(before + "the host is out of memory");
  }
}

}  // namespace tpjrt::runner

namespace torch_pjrt {

namespace runner = tpjrt::runner;

Tensor Tensor::view(DType dtype, Shape shape, const void* data) {
  return runner::on_host(dtype, std::move(shape), data, nullptr);
}

Tensor Tensor::copy(DType dtype, Shape shape, const void* data) {
  constexpr size_t kLine = 64;
  const size_t size = runner::checked_size(dtype, shape);
  std::shared_ptr<void> memory(std::aligned_alloc(kLine, (size + kLine) / kLine * kLine), std::free);
  if (!memory) throw OutOfMemory("the host is out of memory: " + std::to_string(size) + " bytes for a tensor");
  if (size > 0) std::memcpy(memory.get(), data, size);
  const void* first = memory.get();
  return runner::on_host(dtype, std::move(shape), first, std::move(memory));
}

Tensor Tensor::load_npy(const std::string& path) {
  return runner::translated([] { return std::string(); },
                            [&] {
                              const tpjrt::file::Mapping mapping(path);
                              const tpjrt::file::Stored stored = tpjrt::file::read_npy(mapping.bytes(), path);
                              return copy(stored.dtype, stored.shape, stored.bytes.data());
                            });
}

const Tensor::Data& Tensor::held() const {
  if (!data_) throw Error("a tensor that holds nothing was used: make it by Tensor::of, view or copy");
  return *data_;
}

DType Tensor::dtype() const { return held().dtype; }
const Shape& Tensor::shape() const { return held().shape; }
size_t Tensor::nbytes() const { return held().nbytes; }

const void* Tensor::data() const {
  const Data& held = this->held();
  if (!held.buffer) return held.host;
  return runner::translated([] { return std::string(); },
                            [&]() -> const void* {
                              held.buffer->await();
                              if (const void* memory = held.buffer->host_pointer()) return memory;
                              std::call_once(held.fetched, [&] {
                                held.copy.resize(held.nbytes);
                                held.buffer->copy_to_host(held.copy.data(), held.nbytes);
                              });
                              return held.copy.data();
                            });
}

void Tensor::copy_to(void* memory, size_t bytes) const {
  const Data& held = this->held();
  if (bytes < held.nbytes) {
    throw Error("there are " + std::to_string(bytes) + " bytes for " + runner::type_text(held.dtype, held.shape) +
                ", which has " + std::to_string(held.nbytes));
  }
  if (held.nbytes == 0) return;
  if (!held.buffer) {
    std::memcpy(memory, held.host, held.nbytes);
    return;
  }
  runner::translated([] { return std::string(); }, [&] { held.buffer->copy_to_host(memory, held.nbytes); });
}

void Tensor::save_npy(const std::string& path) const {
  runner::translated([] { return std::string(); },
                     [&] {
                       const auto* bytes = static_cast<const std::byte*>(data());
                       tpjrt::file::write_npy(path, {dtype(), shape(), {bytes, nbytes()}});
                     });
}

void Tensor::check_count(const Shape& shape, size_t count) {
  int64_t expected = 1;
  for (const int64_t dim : shape) expected *= dim;
  if (expected < 0 || static_cast<size_t>(expected) != count) {
    throw Error(std::to_string(count) + " values were given for a tensor of " + std::to_string(expected));
  }
}

void Tensor::check_dtype(DType dtype) const {
  if (this->dtype() != dtype) {
    throw Error("values of " + std::string(name(dtype)) + " were asked of a tensor of " +
                std::string(name(this->dtype())));
  }
}

const Tensor& Results::operator[](size_t index) const {
  if (index < tensors_.size()) return tensors_[index];
  throw Error("result " + std::to_string(index) + " was asked for, and there are " + std::to_string(tensors_.size()));
}

const Tensor& Results::operator[](std::string_view name) const {
  for (size_t i = 0; i < names_->size(); ++i) {
    if ((*names_)[i] == name) return tensors_[i];
  }
  std::string all;
  for (const std::string& each : *names_) all += (all.empty() ? "'" : ", '") + each + "'";
  throw Error("there is no result '" + std::string(name) + "'; there are " + all);
}

}  // namespace torch_pjrt
