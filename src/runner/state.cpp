// Reads and writes state, from files and by name.
#include "runner/inside.h"

#include <mutex>
#include <utility>

namespace tpjrt::runner {
namespace {

using pjrt::Client;

// Returns how the dtype or shape differs from the program's; empty if they are equal.
std::string difference(const Described& wanted, DType dtype, const Shape& shape) {
  if (dtype == wanted.dtype && shape == wanted.shape) return "";
  return "'" + wanted.name + "' is " + type_text(wanted.dtype, wanted.shape) + " in the program and " +
         type_text(dtype, shape) + " there";
}

}  // namespace

State::State(std::shared_ptr<Client> client, size_t device, const Signature& signature, const file::Tensors& stored,
             std::shared_ptr<const void> owner, const std::string& path)
    : client_(std::move(client)), device_(device), signature_(signature) {
  for (const StateForm& form : signature.state) {
    const auto found = stored.find(form.described.name);
    if (found == stored.end()) {
      throw file::Error("'" + path + "': the weights have no '" + form.described.name +
                        "': they are of another model, or damaged");
    }
    const std::string other = difference(form.described, found->second.dtype, found->second.shape);
    if (!other.empty()) throw file::Error("'" + path + "': the weights are of another model: " + other);
    buffers_.push_back(upload(found->second, form.described.updated ? nullptr : owner));
  }
}

std::shared_ptr<pjrt::Buffer> State::upload(const file::Stored& stored, std::shared_ptr<const void> owner) const {
  const void* data = stored.bytes.data();
  auto type = std::make_shared<const pjrt::BufferType>(buffer_type(stored.dtype), stored.shape);
  if (owner) return client_->buffer_of_constant(data, std::move(type), device_, [owner] {});
  return client_->buffer_from_host(data, std::move(type), pjrt::HostBufferSemantics::kCopy, device_, {});
}

void State::throw_lost(size_t index) const {
  throw torch_pjrt::Error("'" + signature_.state[index].described.name +
                          "' lost its value in a run that failed: load_state, or open the program again");
}

void State::check_not_frozen(size_t index) const {
  if (!signature_.state[index].is_frozen) return;
  throw torch_pjrt::Error("'" + signature_.state[index].described.name +
                          "' was frozen when the program was exported, and stays as it is: export the model anew");
}

void State::let_go_of_deleted() {
  for (auto& buffer : buffers_) {
    if (buffer && buffer->is_deleted()) buffer = nullptr;
  }
}

size_t State::index_of(std::string_view name) const {
  const auto found = signature_.state_index.find(name);
  if (found != signature_.state_index.end()) return found->second;
  throw torch_pjrt::Error("the program has no state named '" + std::string(name) +
                          "' (describe_state, in Python state(), tells the names)");
}

Tensor State::copy(size_t index) const {
  const std::shared_lock guard(lock_);
  (void)buffer(index);
  const Described& form = signature_.state[index].described;
  const Tensor on_it = on_device(form.dtype, form.shape, buffers_[index]);
  return Tensor::copy(form.dtype, form.shape, on_it.data());
}

void State::set(size_t index, const Tensor& value) {
  check_not_frozen(index);
  const std::string other = difference(signature_.state[index].described, value.dtype(), value.shape());
  if (!other.empty()) throw torch_pjrt::Error("the value doesn't fit: " + other);
  const auto* bytes = static_cast<const std::byte*>(value.data());
  auto buffer = upload({value.dtype(), value.shape(), {bytes, value.nbytes()}}, nullptr);
  const std::unique_lock guard(lock_);
  buffers_[index] = std::move(buffer);
}

void State::save(const std::string& path) const {
  const std::shared_lock guard(lock_);
  file::Tensors tensors;
  std::vector<Tensor> kept;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (signature_.state[i].is_frozen) continue;
    (void)buffer(i);
    const Described& form = signature_.state[i].described;
    kept.push_back(on_device(form.dtype, form.shape, buffers_[i]));
    const auto* bytes = static_cast<const std::byte*>(kept.back().data());
    tensors.emplace(form.name, file::Stored{form.dtype, form.shape, {bytes, kept.back().nbytes()}});
  }
  file::write_safetensors(path, tensors);
}

void State::load(const std::string& path, bool partial) {
  const file::Mapping mapping(path);
  const file::Tensors tensors = file::read_safetensors(mapping.bytes(), path);
  const auto fail = [&](const std::string& reason) -> void {
    throw torch_pjrt::Error("'" + path + "' is state of another model: " + reason);
  };
  std::vector<std::shared_ptr<pjrt::Buffer>> loaded(buffers_.size());
  for (const auto& [name, stored] : tensors) {
    const auto found = signature_.state_index.find(name);
    if (found == signature_.state_index.end()) fail("the program has nothing named '" + name + "'");
    const std::string other = difference(signature_.state[found->second].described, stored.dtype, stored.shape);
    if (!other.empty()) fail(other);
    check_not_frozen(found->second);
    loaded[found->second] = upload(stored, nullptr);
  }
  for (size_t i = 0; !partial && i < loaded.size(); ++i) {
    if (!loaded[i] && !signature_.state[i].is_frozen) {
      fail("it has no '" + signature_.state[i].described.name + "' (partial=true leaves what it lacks as it is)");
    }
  }
  const std::unique_lock guard(lock_);
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i]) buffers_[i] = std::move(loaded[i]);
  }
}

}  // namespace tpjrt::runner
