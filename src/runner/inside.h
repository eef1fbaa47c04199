// The implementation of an opened program.
#pragma once

#include <torch_pjrt/program.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "disk/executables.h"
#include "file/archive.h"
#include "pjrt/client.h"
#include "runner/signature.h"
#include "runner/state.h"

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
