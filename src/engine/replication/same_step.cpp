// Compares graphs through the store of the process group: each process puts a hash, and the graph itself where hashes
// differ.
#include "engine/replication/same_step.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "device/process_group/late_ranks.h"
#include "engine/tier/identity.h"
#include "graph/signature.h"

namespace tpjrt::engine {

namespace {

using std::chrono::milliseconds;

// Returns the value that each process has put under `name`.
std::vector<std::string> of_all(const pjrt::Node& node, const std::string& name, const std::string& own) {
  constexpr std::chrono::minutes kLimit{30};  // the limit of c10d's own collectives of a group
  const auto key = [&](int rank) { return name + "/" + std::to_string(rank); };
  node.store->put(key(node.id), own);
  std::vector<std::string> found(static_cast<size_t>(node.count));
  std::vector<int64_t> late;
  for (int rank = 0; rank < node.count; ++rank) late.push_back(rank);
  device::Waiting waiting;
  for (milliseconds pause{1};; pause = std::min(2 * pause, milliseconds{50})) {
    std::erase_if(late, [&](int64_t rank) {
      auto value = node.store->try_get(key(static_cast<int>(rank)));
      if (value) found[static_cast<size_t>(rank)] = std::move(*value);
      return value.has_value();
    });
    if (late.empty()) return found;
    std::ostringstream who;
    who << "ranks " << c10::IntArrayRef(late) << " of " << node.count;
    TORCH_CHECK(waiting.lasts() < kLimit, "compile_step: ", who.str(),
                " have not captured this step, which has collectives between processes; all of them have to call it");
    waiting.go_on([&] {
      return "rank " + std::to_string(node.id) + " waits for " + who.str() +
             " to capture the step that it has captured: all ranks have to call it";
    });
    std::this_thread::sleep_for(pause);
  }
}

// Returns "'<the first line that differs>' and '<the other's line>'".
std::string difference(const std::string& a, const std::string& b) {
  std::istringstream first(a), second(b);
  std::string of_first, of_second;
  while (of_first == of_second && (first || second)) {
    if (!std::getline(first, of_first)) of_first = "nothing";
    if (!std::getline(second, of_second)) of_second = "nothing";
  }
  constexpr size_t kMost = 300;
  return "'" + of_first.substr(0, kMost) + "' and '" + of_second.substr(0, kMost) + "'";
}

// A text that determines the program's. Device numbers and scalars that are inputs are left out, because processes may
// differ in them.
std::string description(const graph::Walk& walk, const Program& program) {
  const std::string graph = identity(walk);
  std::string text;
  for (size_t i = 0; i < graph.size(); ++i) {
    const size_t end = graph[i] == '@' ? graph.find_first_not_of("0123456789", i + 1) : i;
    if (end > i + 1 && end != std::string::npos && graph[end] == '(') i = end;
    text += graph[i];
  }
  std::ostringstream scalars;
  for (size_t i = 0; i < walk.scalars.size(); ++i) {
    scalars << "\nnumber " << i << ": ";
    if (program.slots.at(i).promoted) {
      scalars << "an input";
    } else {
      const graph::ScalarValue& number = walk.scalars[i];
      scalars << c10::IValue(number.scalar()) << ", bits " << number.bits << ' ' << number.imaginary;
    }
  }
  return text + scalars.str();
}

}  // namespace

void check_same_step(Session& session, const graph::Walk& walk, const Program& program) {
  const std::optional<pjrt::Node>& node = session.node();
  const auto is_collective = [](const graph::Node* call) { return graph::collective(*call->signature).has_value(); };
  if (!node || std::none_of(walk.nodes.begin(), walk.nodes.end(), is_collective)) return;
  static std::atomic<int> captured{0};
  const std::string name = "step " + std::to_string(++captured), text = description(walk, program);
  session.without_gil([&] {
    const std::vector<std::string> hashes = of_all(*node, name, std::to_string(std::hash<std::string>{}(text)));
    const auto other =
        std::find_if(hashes.begin(), hashes.end(), [&](const std::string& hash) { return hash != hashes[0]; });
    if (other == hashes.end()) return;
    const auto rank = static_cast<size_t>(other - hashes.begin());
    const std::vector<std::string> texts = of_all(*node, name + " text", text);
    TORCH_CHECK_NOT_IMPLEMENTED(
        false,
        "the processes have captured different steps, and one with collectives between processes is one program, the "
        "same on all of them. Ranks 0 and ",
        rank, " differ first at ", difference(texts[0], texts[rank]),
        ". What depends on the rank has to be a value of a tensor, not of Python (sizes, slices, conditions); or leave "
        "the capture out: what is recorded between two collectives is one program already");
  });
}

}  // namespace tpjrt::engine
