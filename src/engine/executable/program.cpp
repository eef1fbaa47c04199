// Matches graphs to programs.
#include "engine/executable/program.h"

#include <algorithm>

#include "device/start/optimizer_step.h"

namespace tpjrt::engine {

using graph::ScalarValue;

std::shared_ptr<Program> Program::of_calls(const graph::Walk& walk) {
  auto program = std::make_shared<Program>();
  program->fingerprint = walk.fingerprint;
  program->num_calls = walk.nodes.size();
  for (const graph::Value& value : walk.results) program->result_types.push_back(graph::dense(value.type()));
  return program;
}

bool Program::accepts(const std::vector<ScalarValue>& scalars) const {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].promoted && !(slots[i].constant == scalars[i])) return false;
  }
  return true;
}

void ScalarArguments::make(pjrt::Client& client, const Program& program, const std::vector<ScalarValue>& scalars) {
  clear();
  for (size_t i = 0; i < program.slots.size(); ++i) {
    if (!program.slots[i].promoted) continue;
    const ScalarValue& number = scalars[i];
    if (number.kind == ScalarValue::Kind::kDouble || number.kind == ScalarValue::Kind::kComplex) {
      doubles_.push_back(number.as_double());
      if (number.kind == ScalarValue::Kind::kComplex) doubles_.push_back(number.imaginary);
    } else {
      integers_.push_back(number.as_int());
    }
  }
  const auto upload = [&](const auto& values, PJRT_Buffer_Type type) {
    for (size_t first = 0; first < values.size(); first += kScalarsInVector) {
      const int64_t dims[] = {static_cast<int64_t>(std::min(kScalarsInVector, values.size() - first))};
      buffers_.push_back(client.buffer_from_host(values.data() + first, type, dims, pjrt::HostBufferSemantics::kCopy,
                                                 program.executable->device_index(), {}));
    }
  };
  upload(doubles_, PJRT_Buffer_Type_F64);
  upload(integers_, PJRT_Buffer_Type_S64);
  made_ = true;
}

void ScalarArguments::append_to(std::vector<const pjrt::Buffer*>& arguments) const {
  for (const auto& buffer : buffers_) arguments.push_back(buffer.get());
}

void ScalarArguments::clear() {
  made_ = false;
  doubles_.clear();
  integers_.clear();
  buffers_.clear();
}

std::shared_ptr<Program> ProgramCache::find(const graph::Walk& walk) {
  const auto it = programs_.find(walk.hash);
  if (it == programs_.end()) return nullptr;
  for (const auto& program : it->second) {
    if (program->fingerprint != walk.fingerprint || !program->accepts(walk.scalars)) continue;
    program->last_used = ++used_;
    return program;
  }
  return nullptr;
}

std::vector<ScalarSlot> ProgramCache::slots_for(const graph::Walk& walk) const {
  std::vector<ScalarSlot> slots;
  std::unordered_map<graph::SignaturePtr, size_t> occurrences;
  for (const graph::Node* node : walk.nodes) {
    const size_t occurrence = occurrences[node->signature]++;
    const auto last = last_numbers_.find(node->signature);
    const bool known = last != last_numbers_.end() && occurrence < last->second.size();
    // Floats of optimizer steps and in-place writes are promoted at once. A learning rate may stay for an epoch, and a
    // bias correction changes at the second step: if they were promoted only after a change, every training program
    // would compile once more (Note [Values that vary]). Random ops such as normal_() write, too, but mostly with the
    // same scalars.
    const bool writes = !node->signature->mutated.empty() && !node->signature->random;
    const bool updates = node->signature->op && (writes || device::in_optimizer_step(*node));
    for (size_t i = 0; i < node->scalars.size(); ++i) {
      const ScalarValue& number = node->scalars[i];
      // A view's offset is better a constant: two graphs with different offsets are not the same graph with another
      // value.
      const bool changed = known && node->signature->op && !(last->second[occurrence][i] == number);
      const bool varies = number.kind == ScalarValue::Kind::kKey || changed;
      slots.push_back({number, varies || (updates && number.kind == ScalarValue::Kind::kDouble), false});
    }
  }
  const auto it = programs_.find(walk.hash);
  if (it == programs_.end()) return slots;
  for (const auto& program : it->second) {
    if (program->fingerprint != walk.fingerprint) continue;
    for (size_t i = 0; i < slots.size(); ++i) {
      const ScalarSlot& seen = program->slots[i];
      const bool changed = !seen.promoted && !(seen.constant == slots[i].constant);
      // A scalar of another kind has another signature, so kinds match here.
      slots[i].promoted |= seen.promoted || (changed && !seen.pinned);
      slots[i].pinned |= seen.pinned;
    }
  }
  return slots;
}

void ProgramCache::remember(const graph::Walk& walk) {
  std::unordered_map<graph::SignaturePtr, size_t> occurrences;
  for (const graph::Node* node : walk.nodes) {
    if (node->scalars.empty()) continue;
    auto& seen = last_numbers_[node->signature];
    const size_t occurrence = occurrences[node->signature]++;
    if (occurrence == seen.size()) seen.emplace_back();
    seen[occurrence].assign(node->scalars.begin(), node->scalars.end());
  }
}

void ProgramCache::insert(uint64_t hash, std::shared_ptr<Program> program) {
  auto& bucket = programs_[hash];
  if (program->serial == 0) program->serial = new_serial();
  program->last_used = ++used_;
  // The new program serves every graph that a narrower one serves.
  const auto narrower = [&](const std::shared_ptr<Program>& other) {
    if (other->fingerprint != program->fingerprint) return false;
    for (size_t i = 0; i < other->slots.size(); ++i) {
      const bool wider = program->slots[i].promoted ||
                         (!other->slots[i].promoted && other->slots[i].constant == program->slots[i].constant);
      if (!wider) return false;
    }
    return true;
  };
  count_ -= static_cast<size_t>(std::count_if(bucket.begin(), bucket.end(), narrower));
  bucket.erase(std::remove_if(bucket.begin(), bucket.end(), narrower), bucket.end());
  bucket.push_back(std::move(program));
  ++count_;
}

void ProgramCache::drop_older_half() {
  const auto is_free = [](const std::shared_ptr<Program>& program) { return program.use_count() == 1; };
  std::vector<uint64_t> uses;
  for (const auto& [hash, bucket] : programs_) {
    for (const auto& program : bucket) {
      if (is_free(program)) uses.push_back(program->last_used);
    }
  }
  if (uses.empty()) return;
  const auto middle = uses.begin() + static_cast<int64_t>(uses.size() / 2);
  std::nth_element(uses.begin(), middle, uses.end());
  for (auto& [hash, bucket] : programs_) {
    count_ -= std::erase_if(bucket, [&](const std::shared_ptr<Program>& program) {
      return program->last_used < *middle && is_free(program);
    });
  }
  std::erase_if(programs_, [](const auto& entry) { return entry.second.empty(); });
}

std::vector<std::shared_ptr<Program>> ProgramCache::all() const {
  std::vector<std::shared_ptr<Program>> programs;
  for (const auto& [hash, bucket] : programs_) programs.insert(programs.end(), bucket.begin(), bucket.end());
  return programs;
}

void ProgramCache::clear() {
  programs_.clear();
  last_numbers_.clear();
  count_ = 0;
}

}  // namespace tpjrt::engine
