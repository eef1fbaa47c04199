// Finds the op that XLA rejects.
#include "engine/session/rejected_program.h"

#include <c10/util/Exception.h>

#include <string>
#include <unordered_set>

#include "engine/lower/emit_call.h"
#include "engine/session/out_of_memory.h"

namespace tpjrt::engine {

namespace {

bool compiles_alone(pjrt::Client& client, ops::Target target, const graph::Node& node) {
  const std::string text = emit_alone(*node.signature, node.scalars, target);
  try {
    (void)client.compile(text);
    return true;
  } catch (const pjrt::Error&) {
    return false;
  }
}

// Equal calls share a signature, which has the line of the first.
std::string at_line(const graph::Signature& signature) {
  return signature.file.empty() ? ""
                                : " (first recorded at " + signature.file + ":" + std::to_string(signature.line) + ")";
}

}  // namespace

void throw_failure(const Program& program, const pjrt::Error& error, std::string_view consequence) {
  const std::string largest = program.largest ? program.largest->description() + " " : "";
  if (error.is_out_of_memory()) {
    const auto device = static_cast<c10::DeviceIndex>(program.executable->device_index());
    throw_out_of_memory(error.bytes_lacking().value_or(0), device, largest + std::string(consequence));
  }
  TORCH_CHECK(false, "a graph of ", program.num_calls, " ops can't be run: ", error.what(), "\n", largest, consequence);
}

void throw_refusal(pjrt::Client& client, ops::Target target, const graph::Walk& walk, const pjrt::Error& error) {
  raise_out_of_memory(error, walk.nodes.back()->signature->device, LargestResult::of(walk).get());
  std::unordered_set<graph::SignaturePtr> tried;
  for (const graph::Node* node : walk.nodes) {
    if (!tried.insert(node->signature).second || compiles_alone(client, target, *node)) continue;
    const graph::Signature& signature = *node->signature;
    TORCH_CHECK(false, "[", signature.name, "] XLA refuses this op", at_line(signature), ": ", error.what(),
                "\nNothing was changed: tensors keep their pending values.");
  }
  TORCH_CHECK(false, "XLA refuses a graph of ", walk.nodes.size(), " ops, the last one [",
              walk.nodes.back()->signature->name, "]", at_line(*walk.nodes.back()->signature), ": ", error.what(),
              "\nEach op compiles alone. Nothing was changed: tensors keep their pending values.");
}

}  // namespace tpjrt::engine
