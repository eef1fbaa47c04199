// The process's list of assertions.
#include "device/host/pending_assertions.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <utility>

#include "device/tensor/storage.h"
#include "graph/node.h"

namespace tpjrt::device {

namespace {

std::mutex assertions_lock;
std::atomic<bool> any_assertion = false;

std::vector<at::Tensor>& assertions() {
  static auto* const made = new std::vector<at::Tensor>;
  return *made;
}

}  // namespace

void add_assertion(at::Tensor asserted) {
  const std::lock_guard guard(assertions_lock);
  assertions().push_back(std::move(asserted));
  any_assertion = true;
}

std::vector<at::Tensor> pending_assertions() {
  if (!any_assertion) return {};
  std::vector<at::Tensor> all, pending;  // freed after the locks
  const std::lock_guard guard(assertions_lock);
  std::swap(all, assertions());
  {
    const std::lock_guard graph_guard(graph::graph_lock());
    std::copy_if(all.begin(), all.end(), std::back_inserter(pending),
                 [](const at::Tensor& asserted) { return !storage_of(asserted)->slot.value().is_leaf(); });
  }
  assertions() = pending;
  any_assertion = !pending.empty();
  return pending;
}

}  // namespace tpjrt::device
