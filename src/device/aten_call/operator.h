// The properties of an ATen operator that the recorder needs, read once from its schema and tags.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tpjrt::device {

enum class ArgumentKind : uint8_t { kTensor, kTensorList, kScalar, kScalarList, kGenerator, kConstant };

// The range of a float or an int that programs change from step to step: values that PyTorch accepts and that a rule
// can take as an input. They are numbers of a node. Other values are part of the signature, so that the rule sees
// them.
struct Usual {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  std::optional<double> above_last =
      std::nullopt;   // at least this much above the previous argument, but at most 2 * most
  bool wide = false;  // only where the first tensor has signed elements of four bytes or more
};

struct OperatorArgument {
  ArgumentKind kind = ArgumentKind::kConstant;
  bool written = false;        // according to the schema, or to the correction in operator.cpp
  bool may_be_on_cpu = false;  // index tensors
  bool fits_result = false;    // a Scalar that the CPU's kernel may refuse because the result's dtype can't hold it
  std::optional<Usual> usual;
};

struct Operator {
  explicit Operator(const c10::OperatorHandle& op);
  // Returns the one description of an overload, which lives as long as the process. Thread-safe.
  static const Operator& of(const c10::OperatorHandle& op);

  c10::OperatorHandle op;
  std::string name;  // "aten::add.Tensor"
  std::vector<OperatorArgument> arguments;
  size_t returns = 0;
  bool writes = false;
  bool may_multiply = false;       // matrices, in which case the precision matters
  bool indexes = false;            // reads positions from an index: its inputs and outputs must not overlap
  bool random = false;             // draws from a generator: the node has the generator's key as its last numbers
  std::optional<size_t> draws_by;  // the argument that can turn drawing off: `training` false, `dropout_p` of 0
  bool writes_one_value = false;   // to elements that may share memory, which is no conflict then
  // Lists are written in place, and nothing above the device counts that: autograd's kernels count only the writes
  // that are returned.
  bool counts_lists = false;
  bool has_sizes_of_data = false;    // result sizes may depend on data; for an index, if one is a mask
  std::optional<size_t> correction;  // for a variance: the argument that is subtracted from the number of elements
  // Scalars belong to the signature: in a factory, where they decide the shape, and where Meta refuses some of them.
  bool numbers_are_types = false;
};

// How an overload is registered for the device. Note [What is boxed]: the first rule that fits decides, from the
// dispatcher's state, tags and schema, never from a list of op names. Exceptions are few and state their reason.
enum class Boxing : uint8_t {
  kDefault,   // PyTorch's own composite kernel expresses it by other ops
  kRecord,    // the recorder, registered for the overload, which would otherwise be decomposed before it arrives
  kFallback,  // the recorder, as the backend's fallback
  kOwn,       // a kernel of its own in this room
};
Boxing boxing(const c10::OperatorHandle& op);

}  // namespace tpjrt::device
