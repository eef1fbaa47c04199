// pjrt-run: opens a program, calls one of its entries, and times it.
#include <torch_pjrt/program.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using torch_pjrt::Described;
using torch_pjrt::DType;
using torch_pjrt::Error;
using torch_pjrt::Program;
using torch_pjrt::Tensor;

constexpr const char* kUsage = R"(pjrt-run PROGRAM [options]: runs a program that torch_pjrt.export has saved

  --plugin NAME      a plugin's name, or the path of its shared library (default: TORCH_PJRT_PLUGIN)
  --entry NAME       default: the first
  --input [NAME=]FILE.npy   an argument, by name or in order; what is left out is random by the signature
  --output [NAME=]FILE.npy  a result, by name or in order
  --repeat N         calls it N times more and prints the median and the spread
  --describe         prints the signature, memory and ops
  --weights FILE     the weights of a program that was saved without them
  --kernels FOLDER   where the libraries of kernels are
  --load-state FILE, --save-state FILE   safetensors, before and after
  --device N         index of the plugin's device (default: 0)
)";

struct Arguments {
  std::string program, entry, load_state, save_state;
  torch_pjrt::Options options;
  std::vector<std::string> inputs, outputs;
  int repeat = 0;
  bool describe = false;
};

int number(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 0 || value > 1'000'000'000) {
    throw Error(option + " takes a number, not '" + text + "'");
  }
  return static_cast<int>(value);
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw Error(option + " takes a value");
      return argv[++i];
    };
    if (option == "--describe") {
      arguments.describe = true;
    } else if (option == "--plugin") {
      arguments.options.plugin = value();
    } else if (option == "--entry") {
      arguments.entry = value();
    } else if (option == "--input") {
      arguments.inputs.push_back(value());
    } else if (option == "--output") {
      arguments.outputs.push_back(value());
    } else if (option == "--repeat") {
      arguments.repeat = number(option, value());
    } else if (option == "--weights") {
      arguments.options.weights = value();
    } else if (option == "--kernels") {
      arguments.options.kernels.push_back(value());
    } else if (option == "--load-state") {
      arguments.load_state = value();
    } else if (option == "--save-state") {
      arguments.save_state = value();
    } else if (option == "--device") {
      arguments.options.device = number(option, value());
    } else if (option.starts_with("-") || !arguments.program.empty()) {
      throw Error("unknown option '" + option + "'\n\n" + kUsage);
    } else {
      arguments.program = option;
    }
  }
  if (arguments.program.empty()) throw Error(kUsage);
  return arguments;
}

// Returns the index among `forms` and the file of "NAME=FILE", or of "FILE", which takes the next index in order.
// Throws Error if there is no such argument.
std::pair<size_t, std::string> assigned(const std::string& text, const std::vector<Described>& forms, size_t& next) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    if (next >= forms.size()) throw Error("'" + text + "' is one more than there are: " + std::to_string(forms.size()));
    return {next++, text};
  }
  const std::string name = text.substr(0, equals);
  for (size_t i = 0; i < forms.size(); ++i) {
    if (forms[i].name == name) return {i, text.substr(equals + 1)};
  }
  std::string all;
  for (const Described& form : forms) all += (all.empty() ? "'" : ", '") + form.name + "'";
  throw Error("there is no '" + name + "'; there are " + all);
}

// Returns small numbers of the dtype: integers 0 and 1, floats within 1 of 0. Each call returns the same ones.
Tensor random(const Described& form) {
  size_t count = 1;
  for (const int64_t dim : form.shape) count *= static_cast<size_t>(dim);
  std::mt19937 engine(0);
  std::uniform_real_distribution<double> real(-1, 1);
  const auto filled = [&]<class T>(std::vector<T> values, auto draw) {
    values.reserve(count);
    for (size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(draw()));
    return Tensor::copy(form.dtype, form.shape, values.data());
  };
  const auto bit = [&] { return engine() & 1U; };
  switch (form.dtype) {
    case DType::kFloat32: return filled(std::vector<float>(), [&] { return real(engine); });
    case DType::kFloat64: return filled(std::vector<double>(), [&] { return real(engine); });
    case DType::kComplex64: {
      count *= 2;
      return filled(std::vector<float>(), [&] { return real(engine); });
    }
    // A bfloat16 is the upper half of a 32-bit float.
    case DType::kBFloat16:
      return filled(std::vector<uint16_t>(), [&] {
        const auto value = static_cast<float>(real(engine));
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        return bits >> 16;
      });
    case DType::kFloat16: return filled(std::vector<uint16_t>(), [&] { return 0x3000U + (engine() & 0xBFFU); });
    default: break;
  }
  switch (torch_pjrt::width(form.dtype)) {
    case 1: return filled(std::vector<uint8_t>(), bit);
    case 2: return filled(std::vector<uint16_t>(), bit);
    case 4: return filled(std::vector<uint32_t>(), bit);
    default: return filled(std::vector<uint64_t>(), bit);
  }
}

void time_calls(const Program& program, const Arguments& arguments, const std::vector<Tensor>& inputs) {
  std::vector<double> times;
  for (int i = 0; i < arguments.repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto results = program.call(arguments.entry, inputs);
    for (const Tensor& result : results) (void)result.data();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
  };
  std::printf("%zu calls: median %.1f us, least %.1f, 90%% below %.1f, most %.1f\n", times.size(), at(0.5),
              times.front(), at(0.9), times.back());
}

void run(const Arguments& arguments) {
  const Program program = Program::open(arguments.program, arguments.options);
  if (!arguments.load_state.empty()) program.load_state(arguments.load_state);
  const std::vector<torch_pjrt::Variant>& variants = program.variants(arguments.entry);
  const bool calls =
      !arguments.describe || !arguments.inputs.empty() || !arguments.outputs.empty() || arguments.repeat > 0;
  if (calls) {
    const std::vector<Described>& forms = variants.front().arguments;
    std::vector<Tensor> inputs(forms.size());
    size_t next = 0;
    for (const std::string& input : arguments.inputs) {
      const auto [place, file] = assigned(input, forms, next);
      inputs[place] = Tensor::load_npy(file);
    }
    for (size_t i = 0; i < forms.size(); ++i) {
      if (!inputs[i].inside()) inputs[i] = random(forms[i]);
    }
    const auto results = program.call(arguments.entry, inputs);
    std::vector<Described> given;
    for (const std::string& name : results.names()) given.push_back({name, DType::kFloat32, {}, false});
    next = 0;
    for (const std::string& output : arguments.outputs) {
      const auto [place, file] = assigned(output, given, next);
      results[place].save_npy(file);
    }
    if (arguments.repeat > 0) time_calls(program, arguments, inputs);
  }
  if (!arguments.save_state.empty()) program.save_state(arguments.save_state);
  if (arguments.describe) std::fputs(program.describe().c_str(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--help" && std::string_view(argv[i]) != "-h") continue;
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pjrt-run: %s\n", error.what());
    return 1;
  }
}
