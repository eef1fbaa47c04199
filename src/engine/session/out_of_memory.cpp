// Words OutOfMemoryError. See Note [Out of memory].
#include "engine/session/out_of_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>

#include "engine/session/session.h"

namespace tpjrt::engine {

namespace {

size_t result_bytes(const graph::Node& node) {
  size_t bytes = 0;
  for (const graph::TypePtr type : node.signature->results) {
    if (type) bytes += static_cast<size_t>(type->nbytes());
  }
  return bytes;
}

// Formats like torch.cuda: "4.00 TiB".
std::string size_of(size_t nbytes) {
  static constexpr std::array kUnits{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  auto size = static_cast<double>(nbytes);
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  std::ostringstream text;
  text << std::fixed << std::setprecision(unit == 0 ? 0 : 2) << size << " " << kUnits[unit];
  return text.str();
}

}  // namespace

std::shared_ptr<const LargestResult> LargestResult::of(const graph::Walk& walk, size_t program_nbytes) {
  if (walk.nodes.empty()) return nullptr;
  const auto size = [](const graph::Node* node) {  // ties go to a call with a known line
    return std::pair(result_bytes(*node), !node->signature->file.empty());
  };
  const graph::Node& node = **std::max_element(walk.nodes.begin(), walk.nodes.end(),
                                               [&](const auto* a, const auto* b) { return size(a) < size(b); });
  const graph::Signature& call = *node.signature;
  return std::make_shared<const LargestResult>(
      LargestResult{call.name, call.file, call.line, result_bytes(node), program_nbytes});
}

// Equal calls share a signature, which has the line of the first.
std::string LargestResult::description() const {
  const std::string place = file.empty() ? "" : " (first recorded at " + file + ":" + std::to_string(line) + ")";
  return "The program's largest result, of " + size_of(nbytes) + ", is that of [" + op + "]" + place + ".";
}

void throw_out_of_memory(size_t nbytes, c10::DeviceIndex device, const std::string& more) {
  Session& session = Session::instance();
  std::string text = "pjrt out of memory.";
  if (nbytes > 0) text += " Tried to allocate " + size_of(nbytes) + ".";
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  const int64_t in_use = session.client().memory(index).current_bytes();
  text += " The buffers of device " + std::to_string(index) + " hold " +
          size_of(static_cast<size_t>(std::max<int64_t>(in_use, 0)));
  if (const auto sizes = session.memory_info(device)) {
    text += "; of its memory of " + size_of(sizes->second) + ", " + size_of(sizes->first) + " are free";
  }
  text += ". " + more;
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
}

void raise_out_of_memory(const pjrt::Error& error, c10::DeviceIndex device, const LargestResult* origin) {
  if (!error.is_out_of_memory()) return;
  const size_t lacking = error.bytes_lacking().value_or(0);
  std::string more;
  if (origin && origin->program_nbytes > 0 && origin->program_nbytes < lacking) {
    more = "What [" + origin->op + "] was to be made of is missing, since an earlier program lacked the memory. ";
  } else if (origin) {
    more = origin->description() + " ";
  }
  throw_out_of_memory(lacking, device, more + "(" + error.what() + ")");
}

}  // namespace tpjrt::engine
