// Compiled programs, and the options with which they are compiled.
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

// Named options of a client or a program.
using Options = std::map<std::string, std::variant<std::string, bool, int64_t, double>>;

// The options of a compile. serialize() writes them as a minimal CompileOptionsProto of XLA, in protobuf's wire format,
// by hand: the message is stable, and four fields don't justify a protobuf dependency.
struct CompileOptions {
  int device_ordinal = 0;  // index into Client::devices()
  // Number of replicas that run at once and may communicate, one for each device starting with device_ordinal.
  int replicas = 1;
  // Alternatively, one replica on each of these processes (Node::id), in this order. Each process runs its own, and all
  // must do so.
  std::vector<int> processes = {};
  // Settings of XLA for this program alone, named like its flags, such as {"xla_cpu_enable_fast_math", true}. An
  // unknown one fails the compile.
  Options overrides = {};
  // Overrides that are dropped if the plugin doesn't know them, as older and newer versions may not.
  std::set<std::string> hints = {};

  bool operator==(const CompileOptions&) const = default;
};

// A compiled program, loaded on one device, or on each device of a world (Note [World], graph/world.h). Made by
// Client::compile and Client::deserialize, shared by shared_ptr, keeps its client alive. Several threads may use it at
// once.
class Executable {
 public:
  // Takes ownership of `handle`. Use Client::compile.
  Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* handle, const CompileOptions& options);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Starts the program and stores a buffer for each result in `results`, whose old content is dropped at the end. If
  // the plugin executes asynchronously, they are not ready yet. An argument that the program aliases to a result
  // (tf.aliasing_output) is donated, and deleted on return, unless its index is in `non_donatable`: then the runtime
  // copies it. A buffer that is passed twice can't be donated. Throws Error for arguments that don't fit, but plugins
  // check little more than sizes: a wrong element type of the same size goes unnoticed. A failure while the program
  // runs may be thrown here or by Buffer::await. After a throw `results` is unchanged, but arguments may be deleted.
  // `done`, if given, gets an event that becomes ready when the execution ends, successfully or not.
  //
  // If the program has several replicas, arguments and results are the first one's and own the others'; `done` gets an
  // event for each. A replica whose peers don't start waits for them, on the CPU until the process ends. So nothing is
  // started unless each argument is on its replica's device, and no more programs may run at a time than the plugin has
  // threads for (Session::await_few_in_world).
  void execute(std::span<const Buffer* const> arguments, std::span<const int64_t> non_donatable,
               std::vector<std::shared_ptr<Buffer>>& results, std::vector<Event>* done = nullptr) const;
  // Executes like execute() and waits for the end, which the wait hook can't end. Throws failures of the running
  // program.
  void execute_and_wait(std::span<const Buffer* const> arguments, std::span<const int64_t> non_donatable,
                        std::vector<std::shared_ptr<Buffer>>& results) const;

  size_t num_results() const { return result_types_.size(); }
  const std::vector<std::shared_ptr<const BufferType>>& result_types() const { return result_types_; }
  size_t device_index() const { return device_index_; }
  size_t replicas() const { return replicas_; }
  const Client& client() const { return *client_; }
  // The module's name.
  std::string name() const;
  // Returns bytes for Client::deserialize. Throws Error with kUnimplemented if the plugin can't serialize.
  std::string serialize() const;
  // Bytes of machine code; 0 if the plugin doesn't report them.
  size_t code_size() const;
  // Bytes of device memory that a run needs for results and temporaries, besides its arguments; 0 if the plugin doesn't
  // report them.
  size_t memory_size() const;
  // Returns the program after XLA's passes: a serialized HloModuleProto or another format, which is stored in `format`
  // ("hlo_with_config", "mlir").
  std::string optimized_program(std::string& format) const;
  // Returns it as readable text that can't be parsed back (see hlo_text).
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

// Serializes one partition, a replica for each of the devices with these ids (Device::id), and the overrides.
std::string serialize(const CompileOptions& options, std::span<const int> device_ids, bool spans_processes = false);

}  // namespace tpjrt::pjrt
