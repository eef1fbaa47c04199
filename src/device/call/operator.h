// What the recorder has to know of an ATen operator, read once from its schema and tags.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tpjrt::device {

enum class ArgumentKind : uint8_t { kTensor, kTensorList, kNumber, kNumberList, kGenerator, kConstant };

// Of a float or an int that programs change from step to step: values that PyTorch takes and that a rule can take as an input.
// They are numbers of a node. Others are part of the signature, so that the rule sees them.
struct Usual {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  std::optional<double> above_last =
      std::nullopt;   // so far, or further, above the argument before it, but not above 2 * most
  bool wide = false;  // only where the first tensor has signed elements of four bytes or more
};

struct OperatorArgument {
  ArgumentKind kind = ArgumentKind::kConstant;
  bool written = false;        // the schema, or the correction below, says so
  bool may_be_on_cpu = false;  // index tensors
  bool fits_result = false;    // a Scalar: the CPU's kernel may refuse one that the result's dtype can't hold
  std::optional<Usual> usual;
};

struct Operator {
  explicit Operator(const c10::OperatorHandle& op);
  // The one description of an overload, for the life of the process. Thread-safe.
  static const Operator& of(const c10::OperatorHandle& op);

  c10::OperatorHandle op;
  std::string name;  // "aten::add.Tensor"
  std::vector<OperatorArgument> arguments;
  size_t returns = 0;
  bool writes = false;
  bool may_multiply = false;       // matrices, in which case it is to know how exactly
  bool indexes = false;            // reads positions from an index: then what it reads and what it writes must be apart
  bool random = false;             // draws from a generator: a node has the generator's key as its last numbers
  std::optional<size_t> draws_by;  // which argument says that nothing is drawn: `training` false, `dropout_p` of 0
  bool writes_one_value = false;   // to elements that share memory, which is no conflict then
  // Lists are written in place, which nobody above the device counts: autograd's kernels count the writes that are handed back.
  bool counts_lists = false;
  bool has_sizes_of_data = false;    // its results' sizes may depend on data: of an index, where one is a mask
  std::optional<size_t> correction;  // of a variance: which argument says what to take from the number of elements
  // Scalars belong to the signature: of a factory, where they decide the shape, and where Meta refuses some of them.
  bool numbers_are_types = false;
};

// How an overload is registered for the device. Note [What is boxed]: decided from the dispatcher's state, tags and
// schema, by the first rule that fits, never from a list of op names; exceptions are few and carry their reason.
enum class Boxing : uint8_t {
  kDefault,   // PyTorch's own composite kernel does it in terms of other ops
  kRecord,    // the recorder, registered for the overload because it would be taken apart before it reaches us
  kFallback,  // the recorder, which is the backend's fallback
  kOwn,       // a kernel of its own in this room
};
Boxing boxing(const c10::OperatorHandle& op);

}  // namespace tpjrt::device
