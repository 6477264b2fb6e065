// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/saved_traces.h"

#include "torch_glue/saved_tensors/operator_calls.h"

#include <algorithm>
#include <utility>

namespace spillway {

SavedTraces& SavedTraces::of_thread() {
  thread_local SavedTraces traces;
  return traces;
}

void SavedTraces::add(const at::Tensor& tensor, const PackHook& packed) {
  if (!tensor.has_storage() || !tensor.is_cuda()) return;
  auto trace = packed.trace();
  if (!trace) return;
  if (traces_.size() >= full_) drop_expired();
  OfStorage& known = traces_[tensor.storage().unsafeGetStorageImpl()];
  // An address is reused only after all that was saved of the storage before has ended.
  known.erase(std::remove_if(known.begin(),
                             known.end(),
                             [&](const PackHook::Trace& each) {
                               return each.expired() || each.version.changed() ||
                                      trace->layout.bytes().contains(each.layout.bytes());
                             }),
              known.end());
  known.push_back(std::move(*trace));
}

std::shared_ptr<PackHook> SavedTraces::find(const PassedTensor& operand) const {
  const auto found = traces_.find(operand.storage._unsafe_get_target());
  if (found == traces_.end()) return nullptr;
  for (const PackHook::Trace& each : found->second) {
    if (each.expired() || !each.version.is(operand.version) ||
        !each.layout.bytes().contains(operand.layout.bytes())) {
      continue;
    }
    if (auto handle = PackHook::of_trace(each, operand.layout)) return handle;
  }
  return nullptr;
}

void SavedTraces::drop_expired() {
  std::erase_if(traces_, [](const auto& entry) {
    return std::all_of(entry.second.begin(), entry.second.end(), [](const PackHook::Trace& each) {
      return each.expired();
    });
  });
  full_ = std::max<std::size_t>(256, 2 * traces_.size());
}

}  // namespace spillway
