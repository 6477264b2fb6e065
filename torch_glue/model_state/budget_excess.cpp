// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/budget_excess.h"

#include "torch_glue/model_state/running_operator.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <utility>

namespace spillway {
namespace {

struct Noted {
  LightMutex mutex;
  std::array<std::optional<BudgetExcess>, C10_COMPILE_TIME_MAX_GPUS> of_device
      SPILLWAY_GUARDED_BY(mutex);
};

Noted& noted() {
  static auto* const all = new Noted;
  return *all;
}

std::vector<BudgetExcess::Argument> arguments() {
  std::vector<BudgetExcess::Argument> found;
  std::vector<const c10::StorageImpl*> seen;
  for (const at::Tensor& tensor : RunningOperator::tensors()) {
    if (!tensor.has_storage() || !tensor.is_cuda()) continue;
    const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    if (std::find(seen.begin(), seen.end(), storage) != seen.end()) continue;
    seen.push_back(storage);
    BudgetExcess::Argument argument{tensor.sizes().vec(),
                                    c10::getDtypeNames(tensor.scalar_type()).first,
                                    Bytes{storage->nbytes()},
                                    {},
                                    0,
                                    {}};
    if (const ManagedStorage* const managed = ManagedStorage::of(*storage)) {
      argument.of = model_class_name(managed->model_class());
      argument.id = managed->id();
    }
    found.push_back(std::move(argument));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& left, const auto& right) {
    return left.bytes > right.bytes;
  });
  return found;
}

void note(DeviceRuntime& device, Bytes size, Bytes needed) {
  const DeviceId id = device.device().id;
  std::optional<BudgetExcess>& largest = noted().of_device.at(static_cast<std::size_t>(id));
  {
    const LightLock lock(noted().mutex);
    if (largest && largest->needed >= needed) return;
  }
  BudgetExcess excess{RunningOperator::name(),
                      size,
                      needed,
                      arguments(),
                      ManagedStorages::instance().bytes(id).resident};
  const LightLock lock(noted().mutex);
  largest = std::move(excess);
}

}  // namespace

void note_budget_excesses() {
  DeviceRuntime::set_excess_observer(&note);
}

std::optional<BudgetExcess> largest_budget_excess(DeviceId device) {
  std::optional<BudgetExcess> found;
  {
    const LightLock lock(noted().mutex);
    found = noted().of_device.at(static_cast<std::size_t>(device));
  }
  if (!found) return found;
  for (BudgetExcess::Argument& argument : found->arguments)
    if (argument.id != 0) argument.name = ManagedStorages::instance().names().of(argument.id);
  return found;
}

}  // namespace spillway
