// A cache of prepared calls by form, which drops the least recently used.
#include "onednn/prepared.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

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

}  // namespace tpjrt::onednn
