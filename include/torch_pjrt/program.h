// Programs in files, run without Python and without PyTorch.
//
//   auto program = torch_pjrt::Program::open("model.pjrt", {.plugin = "xla_cpu_pjrt"});
//   auto results = program({torch_pjrt::Tensor::of<float>({1, 3}, {1, 2, 3})});
//   std::vector<float> y = results[0].values<float>();
//
// Python writes a file with torch_pjrt.export(...).save(path); docs/file-format.md describes its content. Failures throw
// Error, whose message names the argument or the file and the cure.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <torch_pjrt/dtype.h>

#if defined(__GNUC__)
#define TORCH_PJRT_API __attribute__((visibility("default")))
#else
#define TORCH_PJRT_API
#endif

namespace torch_pjrt {

// A problem with a file, an argument, a plugin or a run.
struct TORCH_PJRT_API Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The device, or the host, ran out of memory.
struct TORCH_PJRT_API OutOfMemory : Error {
  using Error::Error;
};

using Shape = std::vector<int64_t>;

// A dense row-major array, on the host or, as a program's result, on its device. Immutable, cheap to copy, thread-safe.
class TORCH_PJRT_API Tensor {
 public:
  Tensor() = default;
  // Returns a tensor over memory that the caller keeps, and doesn't write to, while the tensor is used. Plugins that
  // compute in host memory use it in place if it is aligned to 64 bytes; otherwise every call copies it.
  static Tensor view(DType dtype, Shape shape, const void* data);
  static Tensor copy(DType dtype, Shape shape, const void* data);
  template <class T>
  static Tensor of(Shape shape, const std::vector<T>& values) {
    check_count(shape, values.size());
    return copy(dtype_of<T>, std::move(shape), values.data());
  }
  // Reads a .npy file.
  static Tensor load_npy(const std::string& path);

  DType dtype() const;
  const Shape& shape() const;
  size_t nbytes() const;
  // These wait for the program that computes the tensor, and throw its failure. The pointer is valid as long as this
  // tensor or a copy of it exists.
  const void* data() const;
  void copy_to(void* memory, size_t bytes) const;
  template <class T>
  std::vector<T> values() const {
    check_dtype(dtype_of<T>);
    std::vector<T> values(nbytes() / sizeof(T));
    copy_to(values.data(), nbytes());
    return values;
  }
  void save_npy(const std::string& path) const;

  // For this library's internal use.
  struct Data;
  explicit Tensor(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  const std::shared_ptr<const Data>& inside() const { return data_; }

 private:
  static void check_count(const Shape& shape, size_t count);
  void check_dtype(DType dtype) const;
  const Data& held() const;

  std::shared_ptr<const Data> data_;
};

// The results of an entry: tensors in order, each with a name.
class TORCH_PJRT_API Results {
 public:
  Results(std::shared_ptr<const std::vector<std::string>> names, std::vector<Tensor> tensors)
      : names_(std::move(names)), tensors_(std::move(tensors)) {}

  size_t size() const { return tensors_.size(); }
  const std::vector<std::string>& names() const { return *names_; }
  const Tensor& operator[](size_t index) const;
  const Tensor& operator[](std::string_view name) const;
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }

 private:
  std::shared_ptr<const std::vector<std::string>> names_;
  std::vector<Tensor> tensors_;
};

struct Options {
  // A plugin's name ("xla_cpu_pjrt"), which is searched in TORCH_PJRT_PLUGIN_PATH (folders, joined by ':') and in the
  // site-packages of the active Python environment, or the path of its shared library. Empty: TORCH_PJRT_PLUGIN.
  std::string plugin = {};
  // Path of the weights of a file that was saved without them. Empty: the name stored in the file, in the file's
  // folder.
  std::string weights = {};
  // Folders with the libraries of user kernels that the file needs. The file's own folder is searched first.
  std::vector<std::string> kernels = {};
  // Index of the plugin's device that computes.
  int device = 0;
  // The plugin's own options, such as {"memory_fraction", 0.5}.
  std::map<std::string, std::variant<std::string, bool, int64_t, double>> client_options = {};
};

// An argument, a result or a piece of state.
struct Described {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  bool updated = false;  // an argument whose new value is a result, or state that some entry writes
};
// A set of sizes for which an entry has a program.
struct Variant {
  std::map<std::string, int64_t> sizes;
  std::vector<Described> arguments, results;
};

// An opened file: its entries, and its state, which stays on the device between calls.
//
// Thread-safe: calls that update state run one at a time. Cheap to copy: copies share the state.
class TORCH_PJRT_API Program {
 public:
  // Reads the signature and the weights. An entry is compiled, or loaded from the disk cache, at its first call.
  static Program open(const std::string& path, const Options& options = {});

  std::vector<std::string> entries() const;
  const std::vector<Variant>& variants(std::string_view entry) const;

  // Calls an entry, with arguments by position or by name. On the CPU it returns when the program is done.
  Results call(std::string_view entry, const std::vector<Tensor>& arguments) const;
  Results call(std::string_view entry, const std::map<std::string, Tensor>& arguments) const;
  Results call(std::string_view entry, std::initializer_list<Tensor> arguments) const {
    return call(entry, std::vector<Tensor>(arguments));
  }
  // Calls the only entry, or the first.
  Results operator()(std::initializer_list<Tensor> arguments) const { return call("", arguments); }
  Results operator()(const std::vector<Tensor>& arguments) const { return call("", arguments); }
  Results operator()(const std::map<std::string, Tensor>& arguments) const { return call("", arguments); }
  // Compiles an entry now, for all its sizes.
  void prepare(std::string_view entry = {}) const;

  // The current state: parameters, buffers, optimizer state, and the random state ("random_state": a seed and an
  // offset).
  std::vector<Described> describe_state() const;
  Tensor state(std::string_view name) const;
  std::map<std::string, Tensor> state() const;
  void set_state(std::string_view name, const Tensor& value) const;
  // Saves and loads state as safetensors, except state that was frozen at export, which isn't set either. `partial`:
  // the file may lack some of the state, which then stays unchanged.
  void save_state(const std::string& path) const;
  void load_state(const std::string& path, bool partial = false) const;

  // Returns tables of the signature, memory and ops.
  std::string describe() const;
  const std::string& path() const;

  struct Inside;
  explicit Program(std::shared_ptr<Inside> inside) : inside_(std::move(inside)) {}
  Inside& inside() const { return *inside_; }

 private:
  std::shared_ptr<Inside> inside_;
};

}  // namespace torch_pjrt
