// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/saved_traces.h"

#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/operator_calls.h"
#include "torch_glue/saved_tensors/tensor_notes.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

constexpr std::size_t kLeastFull = 512;

template <typename List, typename Drop>
void drop_if(List& list, Drop drop) {
  list.erase(std::remove_if(list.begin(), list.end(), drop), list.end());
}

}  // namespace

SavedTraces& SavedTraces::of_thread() {
  thread_local SavedTraces traces;
  return traces;
}

void SavedTraces::add(const at::Tensor& tensor, const PackHook& packed, bool with_node) {
  if (!tensor.has_storage() || !tensor.is_cuda()) return;
  auto trace = packed.trace();
  if (!trace) return;
  if (storages_.size() + results_.size() >= full_) drop_expired();
  if (const auto& node = tensor.grad_fn(); with_node && node != nullptr) {
    const auto output = static_cast<std::uint32_t>(tensor.output_nr());
    add_result({node, output}, trace->version.number(), *trace);
    const auto source = source_of_cast(*node);
    if (source && c10::elementSize(source->type) < tensor.itemsize() &&
        c10::isFloatingType(source->type) && tensor.is_floating_point()) {
      add_result(node->next_edge(0), source->version, *trace, source->type);
    }
  }
  auto& known = storages_[tensor.storage().unsafeGetStorageImpl()];
  drop_if(known, [&](const PackHook::Trace& each) {
    return each.expired() || each.version.changed() ||
           trace->layout.bytes().contains(each.layout.bytes());
  });
  known.push_back(*std::move(trace));
}

std::shared_ptr<PackHook> SavedTraces::find(const PassedTensor& operand) const {
  // An address is reused only after everything that was saved of the storage before has ended.
  const auto found = storages_.find(operand.storage._unsafe_get_target());
  if (found == storages_.end()) return nullptr;
  for (const PackHook::Trace& each : found->second) {
    if (each.expired() || !each.version.is(operand.version) ||
        !each.layout.bytes().contains(operand.layout.bytes())) {
      continue;
    }
    if (auto handle = PackHook::of_trace(each, operand.layout)) return handle;
  }
  return nullptr;
}

SavedTraces::Found SavedTraces::find(const torch::autograd::Edge& edge,
                                     std::uint32_t version) const {
  const auto found = results_.find(edge.function.get());
  if (found == results_.end()) return {};
  Found from_cast;
  for (const Result& each : found->second) {
    if (each.expired() || each.output != edge.input_nr || each.version != version) continue;
    auto handle = PackHook::of_trace(each.trace, each.trace.layout);
    if (handle == nullptr) continue;
    if (!each.cast) return {std::move(handle), std::nullopt};
    from_cast = {std::move(handle), each.cast};
  }
  return from_cast;
}

void SavedTraces::add_result(const torch::autograd::Edge& edge,
                             std::uint32_t version,
                             PackHook::Trace trace,
                             std::optional<at::ScalarType> cast) {
  if (edge.function == nullptr) return;
  auto& known = results_[edge.function.get()];
  drop_if(known, [](const Result& each) { return each.expired(); });
  known.push_back(
      {compat::WeakNodePtr(edge.function), edge.input_nr, version, std::move(trace), cast});
}

void SavedTraces::drop_expired() {
  const auto all_expired = [](const auto& entry) {
    return std::all_of(
        entry.second.begin(), entry.second.end(), [](const auto& each) { return each.expired(); });
  };
  std::erase_if(storages_, all_expired);
  std::erase_if(results_, all_expired);
  full_ = std::max(kLeastFull, 2 * (storages_.size() + results_.size()));
}

}  // namespace spillway
