// The implementation of an opened program.
#pragma once

#include <torch_pjrt/program.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "disk/executables.h"
#include "file/archive.h"
#include "file/tensors.h"
#include "pjrt/client.h"
#include "runner/signature.h"
#include "runner/tensor.h"

namespace tpjrt::runner {

// A program's state: a device buffer for each piece, read by entries and written by some.
//
// Entries that only read state share the lock while they are started. Entries that write hold it exclusively, because
// they donate buffers. A piece that a failed run has consumed is null.
class State {
 public:
  // `stored`: the weights and the initial state in the file `path`; `owner` keeps their memory. Weights that no entry
  // writes are used in the mapped file if the device's memory is the host's. Throws file::Error.
  State(std::shared_ptr<pjrt::Client> client, size_t device, const Signature& signature, const file::Tensors& stored,
        std::shared_ptr<const void> owner, const std::string& path);

  std::shared_mutex& lock() const { return lock_; }
  // Call it under the lock. Throws if a failed run has consumed the piece.
  const pjrt::Buffer* buffer(size_t index) const {
    if (!buffers_[index]) throw_lost(index);
    return buffers_[index].get();
  }
  // Call it with the lock held exclusively.
  void set(size_t index, std::shared_ptr<pjrt::Buffer> buffer) { buffers_[index] = std::move(buffer); }
  // Drops deleted buffers after a failed run. Call it with the lock held exclusively.
  void let_go_of_deleted();

  size_t index_of(std::string_view name) const;
  Tensor copy(size_t index) const;
  void set(size_t index, const Tensor& value);
  void save(const std::string& path) const;
  void load(const std::string& path, bool partial);

 private:
  [[noreturn]] void throw_lost(size_t index) const;
  void check_not_frozen(size_t index) const;
  std::shared_ptr<pjrt::Buffer> upload(const file::Stored& stored, std::shared_ptr<const void> owner) const;

  std::shared_ptr<pjrt::Client> client_;
  size_t device_;
  const Signature& signature_;
  mutable std::shared_mutex lock_;
  std::vector<std::shared_ptr<pjrt::Buffer>> buffers_;
};

}  // namespace tpjrt::runner

namespace torch_pjrt {

struct Program::Inside {
  // A variant, compiled at its first call.
  struct Compiled {
    std::mutex lock;
    std::atomic<bool> is_ready{false};
    std::shared_ptr<tpjrt::pjrt::Executable> executable;
    bool from_disk = false;
    std::vector<std::shared_ptr<const tpjrt::pjrt::BufferType>> argument_types;
    bool writes_state = false;
  };
  struct Entry {
    const tpjrt::runner::EntryForm* form;
    std::vector<Variant> described;
    std::vector<std::unique_ptr<Compiled>> compiled;  // by variant
  };

  // Throws file::Error and the plugin's errors.
  Inside(std::shared_ptr<tpjrt::pjrt::Client> client, const std::string& path, const std::string& weights,
         const std::vector<std::string>& kernels, size_t device);

  const Entry& entry(std::string_view name) const;
  // Returns the variant for these shapes. Throws Error with the name of the argument that doesn't fit.
  size_t fitting(const Entry& entry, const std::vector<Tensor>& arguments) const;
  const Compiled& ready(const Entry& entry, size_t variant);
  Results call(const Entry& entry, const std::vector<Tensor>& arguments);

  std::shared_ptr<tpjrt::pjrt::Client> client;
  std::shared_ptr<const tpjrt::file::Archive> archive;
  tpjrt::runner::Signature signature;
  size_t device;
  std::vector<Entry> entries;
  std::unique_ptr<tpjrt::runner::State> state;
};

}  // namespace torch_pjrt

namespace tpjrt::runner {

// Opens a file with an existing client. Throws torch_pjrt::Error.
torch_pjrt::Program open_with(std::shared_ptr<pjrt::Client> client, const torch_pjrt::Options& options,
                              const std::string& path);

}  // namespace tpjrt::runner

namespace tpjrt::runner {

// Returns the path of a plugin's shared library. Throws torch_pjrt::Error with the searched places.
std::string find_plugin(const std::string& name);
// Returns the client of a plugin and a set of options, which lives as long as the process.
std::shared_ptr<pjrt::Client> client_for(const torch_pjrt::Options& options);

// Registers the handlers that a file needs. `folders`: searched for libraries, in addition to their original paths.
void load_kernels(pjrt::Client& client, const std::vector<KernelForm>& kernels,
                  const std::vector<std::string>& folders);

}  // namespace tpjrt::runner
