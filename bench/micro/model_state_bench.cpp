// SPDX-License-Identifier: Apache-2.0
// The host's time of operators on managed tensors, beside that of others, and of the choice of what
// to offload. Nothing moves but in the last ones.
#include "allocator/runtime/runtime.h"
#include "bench/micro/micro.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/model_state/managed_storages.h"

#include <ATen/ATen.h>

#include <random>
#include <stdexcept>
#include <vector>

namespace spillway::micro {
namespace {

constexpr std::int64_t kSide = 32;

at::Tensor made(std::int64_t side = kSide) {
  return at::ones({side, side}, at::device(at::kCUDA));
}

at::Tensor managed(std::int64_t side = kSide) {
  const at::Tensor tensor = made(side);
  const auto why =
      ManagedStorages::instance().manage(tensor, ModelClass::kParameter, at::Tensor(), 0);
  TORCH_CHECK(why == Unmanaged::kNone);
  return tensor;
}

/// An operator whose kernel is next to nothing: its time is that of the dispatcher and the guard.
void viewed(benchmark::State& state, const at::Tensor& tensor) {
  for (auto each : state)
    benchmark::DoNotOptimize(tensor.view({-1}));
}

void added(benchmark::State& state, const at::Tensor& tensor) {
  at::Tensor result = made();
  const at::Tensor other = made();
  for (auto each : state)
    at::add_out(result, tensor, other);
}

/// The step of an optimizer over lists, which fit one slice.
void listed(benchmark::State& state, const std::vector<at::Tensor>& list) {
  for (auto each : state)
    at::_foreach_mul_(list, 1.0);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(list.size()));
}

/// A use of one of `count` storages, in the recorded order.
void used(benchmark::State& state, std::size_t count) {
  std::vector<at::Tensor> all;
  std::vector<std::shared_ptr<ManagedStorage>> storages;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(managed(16));
    storages.push_back(
        ManagedStorage::of(*all.back().storage().unsafeGetStorageImpl())->shared_from_this());
  }
  ManagedStorages& state_of_model = ManagedStorages::instance();
  state_of_model.end_step();
  while (state.KeepRunningBatch(static_cast<std::int64_t>(count))) {
    for (const auto& storage : storages)
      state_of_model.used(*storage, false);
    state_of_model.end_step();
  }
}

/// Each use offloads one storage and fetches another, of which `count` are managed and a tenth are
/// resident.
void reclaimed(benchmark::State& state, std::size_t count) {
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back(managed(16));
  DeviceRuntime& device = *Runtime::instance().device(DeviceId{all[0].device().index()}).value();
  ManagedStorages& state_of_model = ManagedStorages::instance();
  const auto use = [&](const at::Tensor& tensor) {
    PinnedStorages pinned;
    pinned.add(tensor, /*writes=*/false);
  };
  for (const at::Tensor& each : all)
    use(each);
  state_of_model.end_step();
  state_of_model.offload_all();
  for (std::size_t i = 0; i < count / 10; ++i)
    use(all[i]);
  std::size_t next = count / 10;
  for (auto each : state) {
    benchmark::DoNotOptimize(ManagedStorages::reclaim(device, Bytes{1}));
    use(all[next]);
    if (++next == count) {
      next = 0;
      state_of_model.end_step();
    }
  }
}

}  // namespace

void register_benchmarks() {
  if (!use_allocator().ok()) throw std::runtime_error("CUDA has started with another allocator");
  ManagedStorages::instance().start(Bytes{1});
  const auto add = [](const std::string& name, const Body& body) {
    add_repeated("BM_ModelState/" + name, body);
  };
  add("view/plain", [](benchmark::State& state) { viewed(state, made()); });
  add("view/managed", [](benchmark::State& state) { viewed(state, managed()); });
  add("add/plain", [](benchmark::State& state) { added(state, made()); });
  add("add/managed", [](benchmark::State& state) { added(state, managed()); });
  for (const bool guarded : {false, true}) {
    add(guarded ? "list/managed" : "list/plain", [guarded](benchmark::State& state) {
      std::vector<at::Tensor> list;
      for (int i = 0; i < 256; ++i)
        list.push_back(guarded ? managed() : made());
      listed(state, list);
    });
  }
  for (const std::size_t count : {200U, 2000U, 20000U}) {
    add("use/" + std::to_string(count), [count](benchmark::State& state) { used(state, count); });
    add("offload and fetch/" + std::to_string(count),
        [count](benchmark::State& state) { reclaimed(state, count); });
  }
}

}  // namespace spillway::micro
