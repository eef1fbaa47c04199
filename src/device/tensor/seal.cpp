// The set of storages that a seal covers.
#include "device/tensor/seal.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <utility>

#include "device/services/foreign_trace.h"
#include "device/tensor/factory.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

thread_local std::shared_ptr<Seal> sealed;

}  // namespace

Seal::Seal() : newest_(reinterpret_cast<uintptr_t>(next_address(0).get())) {
  std::lock_guard lock(graph::graph_lock());
  std::unordered_set<const graph::Component*> seen;
  graph::StorageSlot::for_each_pending([&](const graph::Value& value) {
    const graph::Component* component = graph::Component::root(value.node->component.get());
    if (!seen.insert(component).second) return true;
    const graph::Link& ring = component->slots;
    for (const graph::Link* link = ring.next; link != &ring; link = link->next) {
      pending_.insert(static_cast<const graph::StorageSlot*>(link));
    }
    return true;
  });
}

bool Seal::covers(const at::Tensor& tensor) const {
  const LazyStorage* storage = storage_of(tensor);
  if (reinterpret_cast<uintptr_t>(storage->data()) > newest_) return false;
  std::lock_guard lock(graph::graph_lock());
  return storage->slot.value() && !pending_.contains(&storage->slot);
}

const std::shared_ptr<Seal>& seal() { return sealed; }
void set_seal(std::shared_ptr<Seal> seal) { sealed = std::move(seal); }

void ask_before_write(const at::Tensor& written, const char* op) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_pjrt(written) || !storage_of(written)->whole, op,
      ": writes to x.narrow(dim, start, n), whose start differs by rank. It is a copy in a world in one process, and x "
      "would not change. Write x itself, as in x.index_copy_(dim, start + torch.arange(n, device=\"pjrt\"), values), "
      "x.index_add_ or x.index_fill_; or clone() the part, and change the clone");
  const std::shared_ptr<Seal> held = sealed;
  if (held && foreign_trace().before_write && is_pjrt(written) && held->covers(written))
    foreign_trace().before_write(written, op);
}

}  // namespace tpjrt::device
