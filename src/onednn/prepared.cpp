// The cache of prepared calls by form, which drops the least recently used; and the run of a call, with the words for
// what oneDNN refuses.
#include "onednn/prepared.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

namespace tpjrt::onednn {

namespace {

struct Kept {
  std::shared_ptr<const Prepared> prepared;
  uint64_t used = 0;
};
using AllKept = std::map<Form, Kept>;

std::shared_ptr<const dnnl::memory> packed(const AllKept& kept, const Form& form, const Prepared& made,
                                           const void* given) {
  for (const auto& [other, one] : kept) {
    if (one.prepared && other.digest == form.digest && one.prepared->given_weight == made.given_weight &&
        one.prepared->wanted_weight == made.wanted_weight) {
      return one.prepared->weight;
    }
  }
  dnnl::memory from(made.given_weight, engine(), const_cast<void*>(given)), to(made.wanted_weight, engine());
  dnnl::stream stream(engine());
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
  return std::make_shared<const dnnl::memory>(to);
}

size_t bytes_of(const AllKept& kept) {
  std::set<const dnnl::memory*> seen;
  size_t bytes = 0;
  for (const auto& [form, one] : kept) {
    if (seen.insert(one.prepared->weight.get()).second) bytes += one.prepared->wanted_weight.get_size();
  }
  return bytes;
}

}  // namespace

const dnnl::engine& engine() {
  static const auto& one = *new dnnl::engine(dnnl::engine::kind::cpu, 0);  // leaked: handlers may run at exit
  return one;
}

std::shared_ptr<const Prepared> prepared(const Form& form, const void* weight, Prepared (*make)(const Form&)) {
  static auto& lock = *new std::mutex;
  static auto& kept = *new AllKept;
  static uint64_t calls = 0;
  const std::lock_guard guard(lock);
  if (const auto found = kept.find(form); found != kept.end()) {
    found->second.used = ++calls;
    return found->second.prepared;
  }
  auto made = std::make_shared<Prepared>(make(form));
  made->weight = packed(kept, form, *made, weight);
  kept[form] = {made, ++calls};
  while (kept.size() > 1 && bytes_of(kept) > kMostBytes) {
    kept.erase(std::min_element(kept.begin(), kept.end(),
                                [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
  return made;
}

using dnnl::memory;

Call::Call(ffi::RemainingArgs given, const ffi::Dictionary& attributes, ffi::AnyBuffer into)
    : result(into), has_bias(attributes.get<bool>("has_bias").value()) {
  for (size_t i = 0; i < given.size(); ++i) operands.push_back(given.get<ffi::AnyBuffer>(i).value());
}

memory::data_type Call::type() const {
  switch (result.element_type()) {
    case ffi::F32: return memory::data_type::f32;
    case ffi::BF16: return memory::data_type::bf16;
    default: throw std::invalid_argument("it is for float32 and bfloat16");
  }
}

void Call::run(const Prepared& ready) const {
  const auto over = [](const memory::desc& desc, const ffi::AnyBuffer& buffer) {
    return memory(desc, engine(), buffer.untyped_data());
  };
  thread_local std::vector<char> scratch;
  constexpr size_t kLine = 64;
  const size_t size = ready.scratch.get_size() + kLine;
  if (scratch.size() < size) scratch.resize(size);
  char* aligned = scratch.data() + (kLine - reinterpret_cast<uintptr_t>(scratch.data()) % kLine) % kLine;
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, over(ready.source, operands.at(0))},
                                            {DNNL_ARG_WEIGHTS, *ready.weight},
                                            {DNNL_ARG_DST, over(ready.result, result)},
                                            {DNNL_ARG_SCRATCHPAD, memory(ready.scratch, engine(), aligned)}};
  if (has_bias) arguments.emplace(DNNL_ARG_BIAS, over(ready.bias, operands.at(2)));
  if (has_added()) {
    arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, over(ready.result, operands.back()));
  }
  dnnl::stream stream(engine());
  ready.run.execute(stream, arguments);
  stream.wait();
}

std::string said_of(const std::exception& error) {
  const std::string what = std::string("oneDNN: ") + error.what();
  const auto* own = dynamic_cast<const dnnl::error*>(&error);
  if (own == nullptr || own->status != dnnl_unimplemented) return what;
  return what +
         ", as this processor lacks the instructions (bfloat16 needs AVX-512): export the model in float32, or without "
         "torch_pjrt.kernels.onednn";
}

}  // namespace tpjrt::onednn
