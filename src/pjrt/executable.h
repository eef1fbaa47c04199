// A compiled program, loaded on one device, or on each device of a world (Note [World], pjrt/buffer.h).
//
// Made by Client::compile and Client::deserialize, shared by shared_ptr, keeps its client alive, may be used from any
// thread, by several at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "pjrt/api/api.h"
#include "pjrt/api/event.h"
#include "pjrt/buffer.h"

namespace tpjrt::pjrt {

class Client;

// What a client or a program is made with, by name.
using Options = std::map<std::string, std::variant<std::string, bool, int64_t, double>>;

struct CompileOptions {
  int device_ordinal = 0;  // index into Client::devices()
  // Copies of the program that run at once and may communicate, one a device, from device_ordinal on.
  int replicas = 1;
  // Or one on each of these processes (Node::id), in this order: this one runs its own, and all have to run theirs.
  std::vector<int> processes = {};
  // Settings of XLA for this program alone, by their names as flags, such as {"xla_cpu_enable_fast_math", true}. An
  // unknown one fails the compile.
  Options overrides = {};
  // Those among them that a plugin which doesn't know them does without, as older and newer ones than ours do.
  std::set<std::string> hints = {};

  bool operator==(const CompileOptions&) const = default;
};

class Executable {
 public:
  // Takes ownership of `handle`. Use Client::compile.
  Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* handle, const CompileOptions& options);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Starts the program and puts a buffer for each result into `results`, whose former content is dropped at the end;
  // where the plugin executes asynchronously they are not ready yet. An argument that the program aliases to a result
  // (tf.aliasing_output) is donated, and deleted on return, unless its index is in `non_donatable`: then the runtime
  // copies it. One buffer given twice can't be donated. Throws Error for arguments that don't fit, but plugins look at
  // little more than sizes: a wrong element type of the same size goes unseen. What fails while the program runs may be
  // thrown here or from Buffer::await. After a throw `results` is as it was, but arguments may be deleted. `done`, where
  // given, becomes ready when the execution is over, well or badly.
  void execute(std::span<PJRT_Buffer* const> arguments, std::span<const int64_t> non_donatable,
               std::vector<std::shared_ptr<Buffer>>& results, Event* done = nullptr) const;
  // The same of a program of several replicas: arguments and results are the first one's, and hold the others'; `done` gets an
  // event for each. A replica whose partners don't come waits for them, on the CPU until the process ends: so nothing is
  // started unless each argument is there, on the device of its replica, and no more is to be under way at a time than the
  // plugin has threads for (Session::await_few_in_world).
  void execute_in_world(std::span<const Buffer* const> arguments, std::span<const int64_t> non_donatable,
                        std::vector<std::shared_ptr<Buffer>>& results, std::vector<Event>& done) const;
  // As execute(), and waits until the results are there: one wait for all of them, which the wait hook can't end. What fails
  // while the program runs is thrown here.
  void execute_and_wait(std::span<PJRT_Buffer* const> arguments, std::span<const int64_t> non_donatable,
                        std::vector<std::shared_ptr<Buffer>>& results) const;

  size_t num_results() const { return result_types_.size(); }
  const std::vector<std::shared_ptr<const BufferType>>& result_types() const { return result_types_; }
  size_t device_index() const { return device_index_; }
  size_t replicas() const { return replicas_; }
  const Client& client() const { return *client_; }
  // The name of the module.
  std::string name() const;
  // For Client::deserialize. Throws Error with kUnimplemented where the plugin can't.
  std::string serialize() const;
  // Bytes of machine code, as far as the plugin tells; 0 where it doesn't.
  size_t code_size() const;
  // Bytes of the device's memory that a run needs for its results and for what lies between, besides its arguments; 0
  // where the plugin doesn't tell.
  size_t memory_size() const;
  // The program after XLA's passes: a serialized HloModuleProto, or what else `format` says ("hlo_with_config",
  // "mlir").
  std::string optimized_program(std::string& format) const;
  // The same as readable text, for people to read, not to parse (see pjrt/api/hlo_text.h).
  std::string optimized_hlo() const;

 private:
  const Api& api() const;

  std::shared_ptr<const Client> client_;
  PJRT_LoadedExecutable* handle_;
  PJRT_Executable* executable_ = nullptr;
  size_t device_index_;
  size_t replicas_;
  std::vector<std::shared_ptr<const BufferType>> result_types_;
};

}  // namespace tpjrt::pjrt
