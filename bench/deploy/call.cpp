// Times a call of a program in a file, against the same program by PJRT's C API alone. bench/deploy starts it.
//
//   deploy_bench call FILE PLUGIN both alternately: microseconds of a call, "bare ours" for each round deploy_bench
//   time FILE PLUGIN reads numbers of calls, one a line: makes that many calls, prints microseconds of one
#include <torch_pjrt/program.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "pjrt/executable.h"
#include "runner/inside.h"

namespace {

using namespace tpjrt;
using torch_pjrt::Program;
using torch_pjrt::Tensor;

double microseconds(int calls, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
}

std::vector<Tensor> zeros(const std::vector<torch_pjrt::Described>& forms) {
  std::vector<Tensor> tensors;
  for (const auto& form : forms) {
    size_t size = torch_pjrt::width(form.dtype);
    for (const int64_t dim : form.shape) size *= static_cast<size_t>(dim);
    const std::vector<char> bytes(size, 0);
    tensors.push_back(Tensor::copy(form.dtype, form.shape, bytes.data()));
  }
  return tensors;
}

// A program with one argument and one result by the C API alone: no checks, no names, and state buffers made once.
class Bare {
 public:
  Bare(pjrt::Client& client, const runner::VariantSpec& variant, const std::string& text, const Program& program,
       const Tensor& input)
      : client_(client), api_(client.api()), input_(input) {
    const runner::Text& own =
        variant.texts.contains("cpu") ? variant.texts.find("cpu")->second : variant.texts.at("any");
    const std::string options = pjrt::serialize(own.options, std::array{client.devices()[0].id});
    PJRT_Program code{};
    code.struct_size = PJRT_Program_STRUCT_SIZE;
    code.code = const_cast<char*>(text.data());
    code.code_size = text.size();
    code.format = "mlir";
    code.format_size = 4;
    TPJRT_ARGS(PJRT_Client_Compile, compile);
    compile.client = client.handle();
    compile.program = &code;
    compile.compile_options = options.data();
    compile.compile_options_size = options.size();
    TPJRT_CALL(api_, PJRT_Client_Compile, compile);
    executable_ = compile.executable;
    for (const runner::Place& place : variant.parameters) {
      if (place.kind == runner::Place::Kind::kArgument) {
        place_ = arguments_.size();
        arguments_.push_back(nullptr);
        continue;
      }
      const auto& form = program.inside().signature.state[place.index].described;
      kept_.push_back(program.state(form.name));
      arguments_.push_back(upload(kept_.back()));
    }
  }

  void call() {
    arguments_[place_] = upload(input_);
    PJRT_Buffer* result = nullptr;
    PJRT_Buffer** results = &result;
    PJRT_Event* done = nullptr;
    PJRT_Buffer* const* list = arguments_.data();
    PJRT_ExecuteOptions options{};
    options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
    TPJRT_ARGS(PJRT_LoadedExecutable_Execute, execute);
    execute.executable = executable_;
    execute.options = &options;
    execute.argument_lists = &list;
    execute.num_devices = 1;
    execute.num_args = arguments_.size();
    execute.output_lists = &results;
    execute.device_complete_events = &done;
    TPJRT_CALL(api_, PJRT_LoadedExecutable_Execute, execute);
    await(done);
    destroy(result);
    destroy(arguments_[place_]);
  }

 private:
  PJRT_Buffer* upload(const Tensor& tensor) {
    TPJRT_ARGS(PJRT_Client_BufferFromHostBuffer, args);
    args.client = client_.handle();
    args.data = tensor.data();
    args.type = runner::buffer_type(tensor.dtype());
    args.dims = tensor.shape().data();
    args.num_dims = tensor.shape().size();
    args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy;
    args.device = client_.devices()[0].handle;
    TPJRT_CALL(api_, PJRT_Client_BufferFromHostBuffer, args);
    TPJRT_ARGS(PJRT_Event_Destroy, event);
    event.event = args.done_with_host_buffer;
    TPJRT_CALL(api_, PJRT_Event_Destroy, event);
    return args.buffer;
  }
  void await(PJRT_Event* done) {
    TPJRT_ARGS(PJRT_Event_Await, wait);
    wait.event = done;
    TPJRT_CALL(api_, PJRT_Event_Await, wait);
    TPJRT_ARGS(PJRT_Event_Destroy, args);
    args.event = done;
    TPJRT_CALL(api_, PJRT_Event_Destroy, args);
  }
  void destroy(PJRT_Buffer* buffer) {
    TPJRT_ARGS(PJRT_Buffer_Destroy, args);
    args.buffer = buffer;
    TPJRT_CALL(api_, PJRT_Buffer_Destroy, args);
  }

  pjrt::Client& client_;
  const pjrt::Api& api_;
  Tensor input_;
  PJRT_LoadedExecutable* executable_ = nullptr;
  std::vector<PJRT_Buffer*> arguments_;
  std::vector<Tensor> kept_;
  size_t place_ = 0;
};

void run(const std::string& mode, const std::string& path, const std::string& plugin) {
  const Program program = Program::open(path, {.plugin = plugin});
  const std::vector<Tensor> inputs = zeros(program.variants({}).front().arguments);
  const auto ours = [&] { (void)program(inputs); };
  ours();
  if (mode == "time") {
    for (int calls = 0; std::cin >> calls;) std::cout << microseconds(calls, ours) << std::endl;
    return;
  }
  const runner::VariantSpec& variant = program.inside().signature.entries.at(0).variants.at(0);
  const auto own = variant.texts.find("cpu");
  const runner::Text& text = own != variant.texts.end() ? own->second : variant.texts.at("any");
  Bare bare(*program.inside().client, variant, std::string(program.inside().archive->read_text(text.member)), program,
            inputs.at(0));
  constexpr int kRounds = 31, kCalls = 300;
  for (int round = 0; round < kRounds; ++round) {
    double times[2];
    for (int i = 0; i < 2; ++i) {
      const bool is_bare = (i + round) % 2 == 0;
      times[is_bare ? 0 : 1] = is_bare ? microseconds(kCalls, [&] { bare.call(); }) : microseconds(kCalls, ours);
    }
    std::printf("%.3f %.3f\n", times[0], times[1]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw torch_pjrt::Error("deploy_bench call|time FILE PLUGIN");
    run(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "deploy_bench: %s\n", error.what());
    return 1;
  }
}
