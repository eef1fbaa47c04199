// Executables: their results, running them, and storing them; and their options as a protobuf message.
#include "pjrt/executable.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "pjrt/api/event.h"
#include "pjrt/client.h"
#include "pjrt/hlo_text.h"

namespace tpjrt::pjrt {

namespace {

std::vector<std::shared_ptr<const BufferType>> ask_result_types(const Api& api, PJRT_Executable* executable) {
  TPJRT_ARGS(PJRT_Executable_NumOutputs, count);
  count.executable = executable;
  TPJRT_CALL(api, PJRT_Executable_NumOutputs, count);

  TPJRT_ARGS(PJRT_Executable_OutputElementTypes, elements);
  elements.executable = executable;
  TPJRT_CALL(api, PJRT_Executable_OutputElementTypes, elements);

  TPJRT_ARGS(PJRT_Executable_OutputDimensions, dimensions);
  dimensions.executable = executable;
  TPJRT_CALL(api, PJRT_Executable_OutputDimensions, dimensions);

  std::vector<std::shared_ptr<const BufferType>> types;
  const int64_t* dims = dimensions.dims;
  for (size_t i = 0; i < count.num_outputs; ++i) {
    const size_t rank = dimensions.dim_sizes[i];
    types.push_back(
        std::make_shared<const BufferType>(elements.output_types[i], std::vector<int64_t>(dims, dims + rank)));
    dims += rank;
  }
  return types;
}

void destroy_executable(const Api& api, PJRT_Executable* executable) {
  TPJRT_ARGS(PJRT_Executable_Destroy, args);
  args.executable = executable;
  api.call_noexcept(&PJRT_Api::PJRT_Executable_Destroy, args);
}

void destroy_loaded(const Api& api, PJRT_LoadedExecutable* executable) {
  TPJRT_ARGS(PJRT_LoadedExecutable_Destroy, args);
  args.executable = executable;
  api.call_noexcept(&PJRT_Api::PJRT_LoadedExecutable_Destroy, args);
}

// Uninitialized elements: on the stack for nearly every program.
template <class T>
class Few {
 public:
  explicit Few(size_t count) {
    if (count > few_.size()) many_.resize(count);
    data_ = count > few_.size() ? many_.data() : few_.data();
  }
  T* data() const { return data_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  std::array<T, 128> few_;
  std::vector<T> many_;
  T* data_;
};

// Validates an argument of one replica: it must be ready and on the replica's device. A plugin aborts the process
// otherwise.
void check_replica(const Buffer& buffer, size_t argument, size_t device_index) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "PJRT_LoadedExecutable_Execute",
                "argument " + std::to_string(argument) + " of the program on device " + std::to_string(device_index) +
                    " " + what);
  };
  if (buffer.device_index() != device_index) refuse("is on device " + std::to_string(buffer.device_index()));
  if (buffer.is_deleted()) refuse("was given to an earlier program, which wrote over it");
}

uint32_t new_launch_id() {
  static std::atomic<uint32_t> launches{0};
  return ++launches & 0x7fffffff;
}

}  // namespace

Executable::Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* handle,
                       const CompileOptions& options)
    : client_(std::move(client)),
      handle_(handle),
      device_index_(static_cast<size_t>(options.device_ordinal)),
      replicas_(static_cast<size_t>(options.replicas)) {
  try {
    TPJRT_ARGS(PJRT_LoadedExecutable_GetExecutable, args);
    args.loaded_executable = handle_;
    TPJRT_CALL(api(), PJRT_LoadedExecutable_GetExecutable, args);
    executable_ = args.executable;
    result_types_ = ask_result_types(api(), executable_);
  } catch (...) {
    if (executable_ != nullptr) destroy_executable(api(), executable_);
    destroy_loaded(api(), handle_);
    throw;
  }
}

Executable::~Executable() {
  destroy_executable(api(), executable_);
  destroy_loaded(api(), handle_);
}

const Api& Executable::api() const { return client_->api(); }

void Executable::execute(std::span<const Buffer* const> arguments, std::span<const int64_t> non_donatable,
                         std::vector<std::shared_ptr<Buffer>>& results, std::vector<Event>* done) const {
  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = non_donatable.data();
  options.num_non_donatable_input_indices = non_donatable.size();
  if (replicas_ > 1) options.launch_id = static_cast<int>(new_launch_id());

  const size_t outputs = num_results();
  const Few<PJRT_Buffer*> given(replicas_ * arguments.size()), made(replicas_ * outputs);
  const Few<PJRT_Buffer* const*> argument_lists(replicas_);
  const Few<PJRT_Buffer**> result_lists(replicas_);
  const Few<PJRT_Event*> events(replicas_);
  PJRT_Buffer** next = given.data();
  for (size_t r = 0; r < replicas_; ++r) {
    argument_lists[r] = next;
    result_lists[r] = made.data() + r * outputs;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Buffer& buffer = r == 0 ? *arguments[i] : arguments[i]->replica(r);
      if (replicas_ > 1) check_replica(buffer, i, device_index_ + r);
      *next++ = buffer.handle();
    }
  }
  TPJRT_ARGS(PJRT_LoadedExecutable_Execute, args);
  args.executable = handle_;
  args.options = &options;
  args.argument_lists = argument_lists.data();
  args.num_devices = replicas_;
  args.num_args = arguments.size();
  args.output_lists = result_lists.data();
  if (done != nullptr) args.device_complete_events = events.data();
  TPJRT_CALL(api(), PJRT_LoadedExecutable_Execute, args);
  for (size_t r = 0; done != nullptr && r < replicas_; ++r) done->emplace_back(api(), events[r]);

  results.resize(outputs);
  for (size_t i = 0; i < outputs; ++i) {
    results[i] = std::make_shared<Buffer>(client_, made[i], result_types_[i], device_index_);
    std::vector<std::shared_ptr<Buffer>> others;
    for (size_t r = 1; r < replicas_; ++r) {
      others.push_back(std::make_shared<Buffer>(client_, made[r * outputs + i], result_types_[i], device_index_ + r));
    }
    results[i]->set_replicas(std::move(others));
  }
}

void Executable::execute_and_wait(std::span<const Buffer* const> arguments, std::span<const int64_t> non_donatable,
                                  std::vector<std::shared_ptr<Buffer>>& results) const {
  std::vector<Event> done;
  execute(arguments, non_donatable, results, &done);
  for (const Event& event : done) event.await(/*interruptible=*/false);
  for (const auto& result : results) result->mark_ready();
}

std::string Executable::name() const {
  TPJRT_ARGS(PJRT_Executable_Name, args);
  args.executable = executable_;
  TPJRT_CALL(api(), PJRT_Executable_Name, args);
  return std::string(args.executable_name, args.executable_name_size);
}

std::string Executable::serialize() const {
  TPJRT_ARGS(PJRT_Executable_Serialize, args);
  args.executable = executable_;
  TPJRT_CALL(api(), PJRT_Executable_Serialize, args);
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

size_t Executable::code_size() const {
  TPJRT_ARGS(PJRT_Executable_SizeOfGeneratedCodeInBytes, args);
  args.executable = executable_;
  api().call_noexcept(&PJRT_Api::PJRT_Executable_SizeOfGeneratedCodeInBytes, args);
  return args.size_in_bytes > 0 ? static_cast<size_t>(args.size_in_bytes) : 0;
}

size_t Executable::memory_size() const {
  if (!api().has(&PJRT_Api::PJRT_Executable_GetCompiledMemoryStats)) return 0;
  TPJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats, args);
  args.executable = executable_;
  try {
    TPJRT_CALL(api(), PJRT_Executable_GetCompiledMemoryStats, args);
  } catch (const Error& error) {
    if (error.code == ErrorCode::kUnimplemented) return 0;
    throw;
  }
  const int64_t bytes = args.output_size_in_bytes - args.alias_size_in_bytes + args.temp_size_in_bytes;
  return static_cast<size_t>(std::max<int64_t>(bytes, 0));
}

std::string Executable::optimized_program(std::string& format) const {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  TPJRT_ARGS(PJRT_Executable_OptimizedProgram, args);
  args.executable = executable_;
  args.program = &program;
  TPJRT_CALL(api(), PJRT_Executable_OptimizedProgram, args);  // returns the size
  std::string code(program.code_size, '\0');
  program.code = code.data();
  TPJRT_CALL(api(), PJRT_Executable_OptimizedProgram, args);  // returns the program
  code.resize(program.code_size);
  format.assign(program.format, program.format_size);
  return code;
}

std::string Executable::optimized_hlo() const {
  std::string format;
  const std::string program = optimized_program(format);
  return hlo_text(program, format);
}

namespace {

// A protobuf message under construction. Field numbers are those of xla/pjrt/proto/compile_options.proto and
// xla/xla_data.proto.
class Message {
 public:
  void integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void real(int field, double value) {
    tag(field, 1);
    char bytes[sizeof value];  // little-endian, like all supported hosts
    std::memcpy(bytes, &value, sizeof value);
    bytes_.append(bytes, sizeof value);
  }
  void text(int field, const std::string& value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int wire_type) { varint(static_cast<uint64_t>(field << 3 | wire_type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

Message option_override(const Options::mapped_type& value) {
  Message message;  // OptionOverrideProto
  if (const auto* text = std::get_if<std::string>(&value)) message.text(1, *text);
  if (const auto* flag = std::get_if<bool>(&value)) message.integer(2, *flag);
  if (const auto* integer = std::get_if<int64_t>(&value)) message.integer(3, *integer);
  if (const auto* real = std::get_if<double>(&value)) message.real(4, *real);
  return message;
}

}  // namespace

std::string serialize(const CompileOptions& options, std::span<const int> device_ids, bool spans_processes) {
  const auto count = static_cast<int64_t>(device_ids.size());
  Message replicas;  // DeviceAssignmentProto.ComputationDevice
  for (const int id : device_ids) replicas.integer(1, id);

  Message assignment;  // DeviceAssignmentProto
  assignment.integer(1, count);
  assignment.integer(2, 1);
  assignment.message(3, replicas);

  Message build;  // ExecutableBuildOptionsProto
  // The ordinal counts the host's devices. In a client of several processes each process has one device, and -1 stands
  // for it.
  build.integer(1, spans_processes ? -1 : device_ids.front());  // device_ordinal
  build.integer(4, count);                                      // num_replicas
  build.integer(5, 1);                                          // num_partitions
  build.message(9, assignment);

  Message compile;  // CompileOptionsProto
  compile.message(3, build);
  for (const auto& [name, value] : options.overrides) {
    Message entry;  // of map env_option_overrides
    entry.text(1, name);
    entry.message(2, option_override(value));
    compile.message(7, entry);
  }
  return compile.bytes();
}

}  // namespace tpjrt::pjrt
