// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/running_statistics.h"

#include "allocator/base/mutex.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>
#include <unordered_map>

namespace spillway {
namespace {

/// Storages by address. Weak references prevent reuse of the addresses.
class Remembered {
 public:
  static Remembered& instance() {
    static auto* const remembered = new Remembered;
    return *remembered;
  }

  void add(const c10::Storage& storage) {
    const LightLock lock(mutex_);
    if (storages_.size() >= most_) {
      std::erase_if(storages_, [](const auto& entry) { return entry.second.expired(); });
      most_ = std::max(most_, 2 * storages_.size());
    }
    storages_.try_emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl());
    any_ = true;
  }

  bool has(c10::StorageImpl* storage) {
    if (!any_.load(std::memory_order_relaxed)) return false;
    const LightLock lock(mutex_);
    return storages_.contains(storage);
  }

 private:
  LightMutex mutex_;
  std::atomic<bool> any_{false};
  std::size_t most_ SPILLWAY_GUARDED_BY(mutex_) = 1024;
  std::unordered_map<c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_
      SPILLWAY_GUARDED_BY(mutex_);
};

std::unique_ptr<at::ObserverContext> remember(const at::RecordFunction& call) {
  for (const at::Tensor& statistic : running_statistics_of(call)) {
    if (statistic.is_cuda() && statistic.has_storage()) {
      Remembered::instance().add(statistic.storage());
    }
  }
  return nullptr;
}

}  // namespace

std::vector<at::Tensor> running_statistics_of(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  if (name.find("batch_norm") == name.npos && name.find("instance_norm") == name.npos) return {};
  const auto schema = call.operator_schema();
  if (!schema) return {};
  std::vector<at::Tensor> found;
  for (const char* argument : {"running_mean", "running_var"}) {
    const auto index = schema->argumentIndexWithName(argument);
    if (!index || static_cast<std::size_t>(*index) >= call.inputs().size()) continue;
    const c10::IValue value = call.inputs()[static_cast<std::size_t>(*index)];
    if (value.isTensor() && value.toTensor().defined()) found.push_back(value.toTensor());
  }
  return found;
}

bool is_running_statistic(const at::Tensor& tensor) {
  return !tensor.requires_grad() &&
         Remembered::instance().has(tensor.storage().unsafeGetStorageImpl());
}

void see_running_statistics(bool wanted) {
  // PyTorch copies a thread's callbacks to its worker threads and removes them later; only PyTorch
  // knows them.
  const auto& callbacks = at::get_record_function_tls_().sorted_tls_callbacks_;
  const auto ours = std::find_if(callbacks.begin(), callbacks.end(), [](const auto& entry) {
    return entry.callback_.start() == &remember;
  });
  if (wanted == (ours != callbacks.end())) return;
  if (wanted) {
    at::addThreadLocalCallback(at::RecordFunctionCallback(&remember).needsInputs(true).scopes(
        {at::RecordScope::FUNCTION}));
  } else {
    at::removeCallback(ours->handle_);
  }
}

}  // namespace spillway
