// Plans interpreted runs.
#include "engine/run/calls_plan.h"

#include <algorithm>
#include <atomic>
#include <string_view>

#include "engine/lower/call_lowering.h"
#include "engine/lower/emit_call.h"
#include "engine/memory/device_data.h"
#include "graph/node.h"

namespace tpjrt::engine {

using graph::Node;
using graph::Value;

namespace {

// Elements that take about 10 µs: the interval between two checks for signals.
constexpr int64_t kElementsBetweenLooks = 1 << 15, kElementsOfCall = 1 << 11;

int64_t elements(const Node& node) {
  int64_t sum = kElementsOfCall;
  for (const graph::TypePtr type : node.signature->operands) sum += type->numel();
  for (const graph::TypePtr type : node.signature->results) sum += type ? type->numel() : 0;
  return sum;
}

std::atomic<uint64_t> all_made = 0;

// Returns true if the call's program has runtime assertions about its data. CUDA's kernels assert on the GPU or check
// nothing: an index out of range would end all GPU work of this process.
bool is_checked(const graph::Signature& s, c10::ArrayRef<graph::ScalarValue> scalars) {
  const bool may_be = std::ranges::any_of(
      s.operands, [](graph::TypePtr type) { return c10::isIntegralType(type->dtype, /*includeBool=*/true); });
  return may_be && s.op && s.op->hasComputedKernelForDispatchKey(c10::DispatchKey::CUDA) &&
         requires_of_data(s, scalars);
}

// Returns true if programs draw other numbers than PyTorch's kernels.
bool is_drawn_otherwise(const graph::Signature& s) {
  return s.random && kernels::pytorch_draw(s) && way_of(s) != std::string_view("kernel");
}

}  // namespace

KernelCall& kernel_call(const graph::Signature& s, c10::Device device, c10::ArrayRef<graph::ScalarValue> scalars) {
  if (!s.on_host) {
    const bool is_usable = device.is_cpu() ? !is_drawn_otherwise(s) : !is_checked(s, scalars);
    s.on_host = new KernelCall(&s, device, is_usable);
  }
  return *static_cast<KernelCall*>(const_cast<void*>(s.on_host));
}

uint64_t CallsPlan::made() { return all_made; }

CallsPlan::CallsPlan(const graph::Walk& walk, c10::Device device)
    : device(device), program(Program::of_calls(walk)), hash_(walk.hash), refused_(KernelCall::refused()) {
  ++all_made;
  std::vector<uint32_t> first(walk.nodes.size());  // first result of each call
  auto values = static_cast<uint32_t>(walk.leaves.size());
  int64_t since_look = kElementsBetweenLooks;
  for (const Node* node : walk.nodes) {
    const auto results = static_cast<uint32_t>(node->signature->results.size());
    first[node->local] = values;
    values += results;
    KernelCall& call = kernel_call(*node->signature, device, node->scalars);
    calls.push_back({&call, static_cast<uint32_t>(node->operands.size()), results, since_look >= kElementsBetweenLooks,
                     /*overwritten=*/false, call.way() == KernelCall::Way::kView});
    if (calls.back().looks) since_look = 0;
    since_look += elements(*node);
  }
  const auto number = [&](const Value& value) {
    return value.is_leaf() ? value.node->local : first[value.node->local] + value.index;
  };
  for (const Node* node : walk.nodes) {
    for (size_t i = 0; i < node->operands.size(); ++i) {
      const Value& operand = node->operands[i];
      const KernelCall& call = *calls[node->local].call;
      operands.push_back({number(operand), false, call.writes(i)});
      if (operand.is_leaf()) continue;
      Call& source = calls[operand.node->local];
      source.aliases &=
          !call.writes(i) && call.takes_any_strides() && source.call->may_be_given(*node->signature->operands[i]);
    }
  }
  read.resize(values);
  for (const Value& result : walk.results) {
    results.push_back(number(result));
    if (!result.is_leaf()) calls[result.node->local].aliases = false;
    read[results.back()] = 1;
    result_types.push_back(buffer_type(*graph::dense(result.type())));
  }
  for (size_t i = operands.size(); i-- > 0;) {
    char& is_read = read[operands[i].value];
    operands[i].last = is_read == 0;
    is_read = 1;
  }
  mark_overwritten();
  safe = calls.size();
  while (safe > 0 && !calls[safe - 1].call->may_fail()) --safe;
}

void CallsPlan::mark_overwritten() {
  std::vector<Call*> empty(read.size());  // by value, until somebody reads it
  uint32_t next = static_cast<uint32_t>(read.size());
  for (const Call& call : calls) next -= call.results;
  const Operand* operand = operands.data();
  for (Call& call : calls) {
    for (uint32_t i = 0; i < call.operands; ++i, ++operand) {
      Call*& source = empty[operand->value];
      if (source && call.call->fills() && operand->last) source->overwritten = true;
      source = nullptr;
    }
    if (call.call->way() == KernelCall::Way::kEmpty) empty[next] = &call;
    next += call.results;
  }
}

bool CallsPlan::serves(const graph::Walk& walk) const {
  return hash_ == walk.hash && refused_ == KernelCall::refused() && program->fingerprint == walk.fingerprint;
}

}  // namespace tpjrt::engine
