// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/shards.h"

#include "allocator/device/fork.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/check.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/saved_storage/pending_sources.h"
#include "torch_glue/saved_tensors/engine.h"
#include "torch_glue/saved_tensors/layout.h"
#include "torch_glue/saved_tensors/pack_hook.h"
#include "torch_glue/saved_tensors/saved_version.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

namespace spillway {
namespace {

Bytes offset_of(const at::Tensor& tensor) {
  return Bytes{static_cast<std::uint64_t>(tensor.storage_offset() * tensor.element_size())};
}

bool in_backward_pass() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

std::shared_ptr<FileTraffic> traffic_with(const std::string& directory,
                                          const std::vector<std::vector<Shard::Member>>& members,
                                          DeviceRuntime& device) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::uint64_t all = 1;  // an empty file cannot be mapped
  std::uint64_t largest = 0;
  for (const auto& part : members) {
    std::uint64_t size = 0;
    for (const auto& member : part) {
      size += Shard::size_on_device(member).count();
      if (!seen.insert(member.tensor.unsafeGetTensorImpl()).second) continue;
      TORCH_CHECK_VALUE(!__builtin_add_overflow(all, Shard::size_in_file(member).count(), &all),
                        "Spillway: offload_device: the model needs more than 2^64 bytes of a file. "
                        "Split the model.");
    }
    largest = std::max(largest, size);
  }
  // A forked child does not have its thread, and cannot join it.
  const auto end = [](FileTraffic* traffic) {
    if (!in_forked_child()) delete traffic;
  };
  return {new FileTraffic(device, HostFile::create(directory, Bytes{all}), Bytes{largest}), end};
}

}  // namespace

/// A saved tensor of a running part: a weight, or another region's hooks.
class OffloadedShards::SavedWeight final : public torch::autograd::SavedVariableHooks {
 public:
  SavedWeight(std::shared_ptr<OffloadedShards> shards,
              std::size_t part,
              const c10::StorageImpl* storage,
              std::unique_ptr<torch::autograd::SavedVariableHooks> otherwise,
              SavingRules::Source source)
      : shards_(std::move(shards)),
        part_(part),
        storage_(storage),
        otherwise_(otherwise ? std::move(otherwise) : std::make_unique<PackHook>(nullptr)),
        source_(source) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    // A recomputation repeats its casts.
    if (source_ == SavingRules::Source::kRegion) cast_ = WeightCasts::find(tensor, storage_);
    if (!cast_ && !is_ours(tensor)) {
      otherwise_->call_pack_hook(tensor);
      return;
    }
    otherwise_.reset();
    layout_ = Layout(tensor);
    version_ = SavedVersion(tensor);
  }

  at::Tensor call_unpack_hook() override {
    if (otherwise_ && source_ != SavingRules::Source::kPython)
      return otherwise_->call_unpack_hook();
    if (otherwise_) {
      at::Tensor tensor;
      shards_->run(part_, [&] { tensor = otherwise_->call_unpack_hook(); });
      return tensor;
    }
    version_.check(layout_.sizes());
    c10::Storage storage = shards_->load_with_neighbor(part_);
    if (cast_) storage = cast_->again(std::move(storage));
    return layout_.over(std::move(storage), version_.counter());
  }

  compat::UnpackHookData retrieve_unpack_hook_data() const override { return std::nullopt; }

 private:
  [[nodiscard]] bool is_ours(const at::Tensor& tensor) const {
    if (!tensor.has_storage() || tensor.storage().unsafeGetStorageImpl() != storage_) return false;
    if (source_ != SavingRules::Source::kRules) return true;
    // The repeated function may use other buffers in their place (running statistics that do not
    // count), so the outer rules handle buffers.
    return shards_->shards_[part_]->is_parameter(offset_of(tensor));
  }

  const std::shared_ptr<OffloadedShards> shards_;
  const std::size_t part_;
  const c10::StorageImpl* const storage_;
  std::unique_ptr<torch::autograd::SavedVariableHooks> otherwise_;  // null for a weight
  const SavingRules::Source source_;
  std::shared_ptr<const WeightCasts::Cast> cast_;  // null for an uncast weight
  Layout layout_;
  SavedVersion version_;
};

/// Weights are saved as references to the part, whatever regions are inside, so that no slot stays
/// occupied. A call inside that is repeated finds them there.
class OffloadedShards::Rules final : public SavingRules {
 public:
  Rules(std::shared_ptr<OffloadedShards> shards, std::size_t part, c10::Storage storage)
      : shards_(std::move(shards)), part_(part), storage_(std::move(storage)) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override {
    const OffloadedRegion* const around = region_around(*this);
    const bool follows_rules =
        around != nullptr && around->rules &&
        at::SavedTensorDefaultHooks::get_tls_state().stack.size() <= around->python_hooks;
    return cover(hooks_in(around), follows_rules ? Source::kRules : Source::kRegion);
  }

  [[nodiscard]] bool covers_inner() const override { return true; }

  std::unique_ptr<torch::autograd::SavedVariableHooks> cover(
      std::unique_ptr<torch::autograd::SavedVariableHooks> inner, Source source) override {
    return std::make_unique<SavedWeight>(
        shards_, part_, storage_.unsafeGetStorageImpl(), std::move(inner), source);
  }

  [[nodiscard]] CallAgain how_to_call_again() override {
    return [shards = shards_, part = part_](const std::function<void()>& function) {
      shards->run(part, function);
    };
  }

 private:
  const std::shared_ptr<OffloadedShards> shards_;
  const std::size_t part_;
  const c10::Storage storage_;
};

/// A thread's run of a part: members are on the device or on the host for all threads.
class OffloadedShards::Exclusive {
 public:
  explicit Exclusive(OffloadedShards& shards) : shards_(shards) {
    const Lock lock(shards_.mutex_);
    const auto me = std::this_thread::get_id();
    TORCH_CHECK(shards_.runs_ == 0 || shards_.runner_ == me,
                "Spillway: a part of a model runs on another thread: the parts' parameters are on "
                "the device for one thread at a time. Let forward passes, and backward passes that "
                "recompute, run one after another, or give each thread its own model.");
    shards_.runner_ = me;
    ++shards_.runs_;
  }

  ~Exclusive() {
    const Lock lock(shards_.mutex_);
    --shards_.runs_;
  }

  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  OffloadedShards& shards_;
};

std::shared_ptr<OffloadedShards> OffloadedShards::create(
    const std::vector<std::vector<Shard::Member>>& members,
    c10::Device device,
    std::size_t slots,
    const std::string& directory) {
  DeviceRuntime& runtime = *checked(Runtime::instance().device(DeviceId{device.index()}));
  auto all = std::make_shared<OffloadedShards>(runtime);
  if (!directory.empty()) all->traffic_ = traffic_with(directory, members, runtime);
  for (const auto& part : members) {
    all->shards_.push_back(Shard::make(part, all->shards_, runtime, all->traffic_));
    all->largest_ = std::max(all->largest_, all->shards_.back()->size());
  }
  all->running_.resize(members.size());
  all->gradients_ = std::make_shared<HostGradients>(runtime, all->traffic_);
  // No call below may fail.
  for (const auto& shard : all->shards_)
    shard->put_back();
  const Lock lock(all->mutex_);
  all->slots_.resize(slots, Slot{{}, kNothing, {}, {}, 0, {}});
  return all;
}

OffloadedShards::~OffloadedShards() {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  for (Slot& slot : slots_)
    release(slot);
}

void OffloadedShards::begin() {
  const Lock lock(mutex_);
  for (Slot& slot : slots_)
    slot.part = kNothing;
}

void OffloadedShards::run(std::size_t part, const std::function<void()>& function) {
  TORCH_CHECK_INDEX(part < shards_.size(),
                    "Spillway: part ",
                    part,
                    " does not exist: the model has ",
                    shards_.size(),
                    " parts, which count from 0");
  const Exclusive exclusive(*this);
  const bool outermost = !running_[part];
  std::optional<WeightCasts> casts;
  if (outermost) {
    running_[part] = load_with_neighbor(part);
    shards_[part]->put_on(running_[part], *gradients_);
    if (at::autocast::is_autocast_enabled(at::kCUDA)) watch_casts(part, casts);
  }
  const auto back = [&] {
    if (!outermost) return;
    shards_[part]->put_back();
    running_[part] = {};
    // Its casts of this part's weights would stay on the device until autocast ends.
    if (casts) at::autocast::clear_cache();
  };
  try {
    const c10::Storage storage = running_[part];
    const EnteredRegion entered(
        enter_region(std::make_shared<Rules>(shared_from_this(), part, storage)));
    function();
    if (outermost && !in_backward_pass()) {
      shards_[part]->keep_buffers(storage, stream_of(current_stream(device_.device().id)));
    }
  } catch (...) {
    back();
    throw;
  }
  back();
}

void OffloadedShards::watch_casts(std::size_t part, std::optional<WeightCasts>& casts) {
  casts.emplace(running_[part].unsafeGetStorageImpl(),
                [shard = shards_[part].get()](const at::Tensor& tensor) {
                  return shard->is_parameter(offset_of(tensor));
                });
}

c10::Storage OffloadedShards::load_with_neighbor(std::size_t part) {
  const Lock lock(mutex_);
  Slot& slot = slot_of(part, CopyPriority::kDemand);
  settle(slot);
  const c10::Storage storage = slot.storage;
  const auto stream = current_stream(device_.device().id);
  check(driver::Timeline::wait(stream_of(stream), slot.loaded));
  if (std::find(slot.readers.begin(), slot.readers.end(), stream) == slot.readers.end()) {
    slot.readers.push_back(stream);
    // It may have been allocated on another stream.
    c10::cuda::CUDACachingAllocator::recordStream(storage.data_ptr(), stream);
  }
  const bool backward = in_backward_pass();
  if (backward) wait_at_the_end_of_the_pass();
  const bool last = backward ? part == 0 : part + 1 == shards_.size();
  if (last || slots_.size() < 2) return storage;
  try {
    slot_of(backward ? part - 1 : part + 1, CopyPriority::kPrefetch);
  } catch (const c10::Error& error) {
    // It was only a prefetch; the part meets a lasting error when it runs.
    static_cast<void>(error);
  }
  return storage;
}

void OffloadedShards::wait_at_the_end_of_the_pass() {
  const int pass = torch::autograd::get_current_graph_task_id();
  if (std::exchange(waiting_pass_, pass) == pass) return;
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
    if (const auto shards = weak.lock()) shards->wait_for_copies();
  });
}

OffloadedShards::Slot& OffloadedShards::slot_of(std::size_t part, CopyPriority priority) {
  const auto found = std::find_if(
      slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.part == part; });
  Slot& slot = found == slots_.end() ? free_slot() : *found;
  slot.used = ++clock_;
  if (slot.part != part) fill(slot, part, priority);
  return slot;
}

void OffloadedShards::fill(Slot& slot, std::size_t part, CopyPriority priority) {
  const auto index = static_cast<c10::DeviceIndex>(device_.device().id);
  const auto consumer = current_stream(device_.device().id);
  if (!slot.storage) {
    const c10::cuda::CUDAGuard guard(index);
    auto* const allocator = c10::cuda::CUDACachingAllocator::get();
    slot.storage = c10::Storage(c10::Storage::use_byte_size_t{},
                                largest_.count(),
                                allocator->allocate(largest_.count()),
                                allocator,
                                /*resizable=*/false);
  }
  settle(slot);
  slot.part = kNothing;
  check(driver::Timeline::wait(stream_of(consumer), slot.loaded));
  for (const auto& reader : slot.readers) {
    if (reader == consumer) continue;
    at::cuda::CUDAEvent read;
    read.record(reader);
    read.block(consumer);
  }
  slot.readers.clear();
  auto loading = shards_[part]->load(
      driver::DevicePtr(slot.storage.mutable_data()), stream_of(consumer), priority);
  slot.loaded = loading.loaded;
  slot.coming = std::move(loading.later);
  device_.heap().add_fence(driver::DevicePtr(slot.storage.mutable_data()), slot.loaded);
  slot.part = part;
  loaded_ += shards_[part]->size();
}

void OffloadedShards::settle(Slot& slot) {
  if (!slot.coming.valid()) return;
  const Result<driver::Fence> outcome = std::exchange(slot.coming, {}).get();
  if (!outcome.ok()) slot.part = kNothing;
  slot.loaded = checked(outcome);
  device_.heap().add_fence(driver::DevicePtr(slot.storage.mutable_data()), slot.loaded);
}

void OffloadedShards::release(Slot& slot) {
  try {
    settle(slot);
  } catch (const c10::Error& error) {
    static_cast<void>(error);  // nothing was loaded
  }
  if (slot.storage && slot.loaded.set() &&
      !device_.heap().add_fence(driver::DevicePtr(slot.storage.mutable_data()), slot.loaded)) {
    PendingSources::instance().hold(slot.storage, slot.loaded);
  }
  slot = {{}, kNothing, {}, {}, 0, {}};
}

OffloadedShards::Slot& OffloadedShards::free_slot() {
  // Referenced by unpacked tensors, or by a running part: must not be overwritten.
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    if (slot.storage && compat::holders(slot.storage, *slot.storage.unsafeGetStorageImpl()) > 1) {
      continue;
    }
    if (best == nullptr || slot.used < best->used) best = &slot;
  }
  if (best != nullptr) return *best;
  ++extra_;
  Slot& oldest = *std::min_element(
      slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.used < b.used; });
  release(oldest);  // the remaining owners of its memory free it
  return oldest;
}

void OffloadedShards::wait_for_copies() {
  if (traffic_) traffic_->wait();
  for (const auto& shard : shards_)
    shard->wait_for_copies();
}

OffloadedShards::Stats OffloadedShards::stats() const {
  const Lock lock(mutex_);
  const auto made = static_cast<std::uint64_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Slot& slot) { return bool(slot.storage); }));
  return {loaded_, gradients_->offloaded(), Bytes{largest_.count() * made}, extra_};
}

}  // namespace spillway
