// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/accesses.h"

#include "emulator/operators/runtime.h"

#include <iterator>
#include <unordered_map>
#include <unordered_set>

namespace spillway::operators {
namespace {

/// Arguments that operators write although their schema does not declare it.
const std::unordered_map<std::string_view, std::unordered_set<std::string_view>> kHiddenWrites = {
    {"aten::batch_norm_gather_stats", {"running_mean", "running_var"}},
    {"aten::batch_norm_gather_stats_with_counts", {"running_mean", "running_var"}},
    {"aten::batch_norm_update_stats", {"running_mean", "running_var"}},
    {"aten::cudnn_batch_norm", {"running_mean", "running_var"}},
    {"aten::miopen_batch_norm", {"running_mean", "running_var"}},
    {"aten::native_batch_norm", {"running_mean", "running_var"}},
};

/// For a list, the elements are written.
bool writes(const c10::AliasInfo* alias) {
  if (alias == nullptr) return false;
  const auto& inside = alias->containedTypes();
  return alias->isWrite() || std::any_of(inside.begin(), inside.end(), [](const auto& contained) {
           return contained.isWrite();
         });
}

bool has_bytes(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.numel() != 0;
}

/// The tensor's bytes for the runtime; none if it has none, or too many axes. In the latter case a
/// race is missed; none is reported falsely.
std::optional<spillway_emulator_view> view_of(const at::Tensor& tensor, bool write) {
  if (!has_bytes(tensor)) return std::nullopt;
  const auto item = static_cast<size_t>(tensor.element_size());
  spillway_emulator_view view{};
  view.at = tensor.const_data_ptr();
  view.run = item;
  view.write = write ? 1 : 0;
  if (tensor.is_contiguous()) {
    view.run *= static_cast<size_t>(tensor.numel());
    return view;
  }
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) == 1 || tensor.stride(i) == 0) continue;
    if (view.axes == std::size(view.counts)) return std::nullopt;
    view.counts[view.axes] = static_cast<size_t>(tensor.size(i));
    view.strides[view.axes++] = static_cast<size_t>(tensor.stride(i)) * item;
  }
  return view;
}

}  // namespace

std::vector<bool> written_arguments(const c10::FunctionSchema& schema) {
  const auto hidden = kHiddenWrites.find(schema.name());
  std::vector<bool> written;
  for (const c10::Argument& argument : schema.arguments()) {
    written.push_back(writes(argument.alias_info()) ||
                      (hidden != kHiddenWrites.end() && hidden->second.contains(argument.name())));
  }
  return written;
}

void report_access(CUstream stream, const at::Tensor& tensor, bool write, const char* name) {
  if (!tensor.is_cuda()) return;
  if (const auto view = view_of(tensor, write))
    emulated_runtime().access_view(stream, &*view, name);
}

void record_access(std::vector<spillway_emulator_view>& records,
                   const at::Tensor& tensor,
                   bool write) {
  if (!tensor.is_cuda()) return;
  if (const auto view = view_of(tensor, write)) records.push_back(*view);
}

void report_host_access(const at::Tensor& tensor, bool write, const char* name) {
  if (const auto view = view_of(tensor, write)) emulated_runtime().host_access_view(&*view, name);
}

Extent extent_of(const at::Tensor& tensor) {
  if (!tensor.is_cuda() || !has_bytes(tensor)) return {};
  int64_t last = 0;  // element
  for (int64_t i = 0; i < tensor.dim(); ++i)
    last += (tensor.size(i) - 1) * tensor.stride(i);
  return {tensor.const_data_ptr(), static_cast<size_t>(last + 1) * tensor.dtype().itemsize()};
}

}  // namespace spillway::operators
