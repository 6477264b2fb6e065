// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/microbatches/microbatches.h"

#include "torch_glue/base/streams.h"
#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_tensors/pack_hook.h"

#include <algorithm>
#include <utility>

namespace spillway {

/// The owner's lock guards everything but the key, which is set once before the unit is shared.
class Microbatches::Unit {
 public:
  Unit(std::shared_ptr<Microbatches> owner, Batch& batch)
      : owner_(std::move(owner)), batch_(batch) {}

  Microbatches& owner() { return *owner_; }

  Batch& batch() { return batch_; }

  UnitKey key;
  std::uint64_t step = 0;
  bool begun = false;
  bool kept = false;
  Bytes offloaded;
  std::vector<std::weak_ptr<SavedStorage>> storages;

 private:
  const std::shared_ptr<Microbatches> owner_;
  Batch& batch_;  // exists until the unit's last tensor has been packed
};

/// One saved tensor of a unit.
class Microbatches::Handle final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Handle(std::shared_ptr<Unit> unit) : unit_(std::move(unit)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    Microbatches& owner = unit_->owner();
    // Tensors that stay anyway form no unit of their own.
    const bool moves =
        !why_not_movable(tensor, owner.options_.min_bytes) &&
        !capture_skip_reason(stream_of(current_stream(DeviceId{tensor.device().index()})));
    if (!unit_->begun && moves) owner.begin(unit_);
    hook_.emplace(unit_->kept ? nullptr : &owner.options_);
    hook_->call_pack_hook(tensor);
    if (const auto storage = hook_->offloaded())
      owner.left(*unit_, storage, tensor.storage().nbytes());
  }

  at::Tensor call_unpack_hook() override {
    at::Tensor tensor = hook_->call_unpack_hook();  // the tensor in use comes first
    if (unit_->begun) unit_->owner().used(*unit_);
    return tensor;
  }

  compat::UnpackHookData retrieve_unpack_hook_data() const override { return std::nullopt; }

 private:
  const std::shared_ptr<Unit> unit_;
  std::optional<PackHook> hook_;
};

/// The tensors saved in one micro-batch's forward pass: a unit for each checkpointed layer, and one
/// for the tensors saved between two of them.
class Microbatches::Batch final : public SavingRules {
 public:
  explicit Batch(std::shared_ptr<Microbatches> owner) : owner_(std::move(owner)) {}

  [[nodiscard]] bool apply_in_graphs() const override { return true; }

  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override {
    if (unit_ == nullptr) unit_ = std::make_shared<Unit>(owner_, *this);
    return std::make_unique<Handle>(unit_);
  }

  void begin_checkpoint() override {
    unit_ = std::make_shared<Unit>(owner_, *this);
    owner_->begin(unit_);
  }

  void end_checkpoint() override { unit_.reset(); }

 private:
  friend class Microbatches;

  const std::shared_ptr<Microbatches> owner_;
  std::shared_ptr<Unit> unit_;  // the unit of tensors saved now
  std::optional<std::uint32_t> number_;
  std::uint32_t layers_ = 0;
};

Microbatches::Microbatches(TagId tag, std::size_t horizon)
    : options_{.tag = tag, .ratio = Ratio::of(1).value(), .prefetch = false, .names_memory = false},
      horizon_(horizon) {}

Microbatches::~Microbatches() = default;

void Microbatches::begin_step() {
  const Lock lock(mutex_);
  ++step_;
  in_step_ = true;
  next_batch_ = 0;
  order_.begin_step();
  units_.clear();
  running_.reset();
}

void Microbatches::end_step() {
  const Lock lock(mutex_);
  in_step_ = false;
}

bool Microbatches::in_step() const {
  const Lock lock(mutex_);
  return in_step_;
}

Result<std::uint64_t> Microbatches::enter() {
  return enter_region(options_, std::make_shared<Batch>(shared_from_this()));
}

void Microbatches::set_horizon(std::size_t horizon) {
  const Lock lock(mutex_);
  horizon_ = horizon;
}

void Microbatches::begin(const std::shared_ptr<Unit>& unit) {
  std::vector<UnitKey> soon;
  {
    const Lock lock(mutex_);
    Batch& batch = unit->batch();
    if (!batch.number_) batch.number_ = next_batch_++;
    unit->key = {*batch.number_, batch.layers_++};
    unit->step = step_;
    unit->begun = true;
    order_.forward(unit->key);
    unit->kept = order_.keeps_resident(unit->key, horizon_);
    ++(unit->kept ? stats_.units_kept : stats_.units);
    units_[unit->key] = unit;
    running_.reset();
    soon = order_.backward_within(horizon_);
  }
  fetch(soon);
}

void Microbatches::left(Unit& unit,
                        const std::shared_ptr<SavedStorage>& storage,
                        std::size_t size) {
  const Lock lock(mutex_);
  const auto known = std::any_of(unit.storages.begin(), unit.storages.end(), [&](const auto& one) {
    return !one.owner_before(storage) && !storage.owner_before(one);
  });
  if (known) return;
  unit.storages.push_back(storage);
  unit.offloaded += Bytes{size};
  stats_.largest_unit = std::max(stats_.largest_unit, unit.offloaded);
}

void Microbatches::used(Unit& unit) {
  std::vector<UnitKey> soon{unit.key};
  {
    const Lock lock(mutex_);
    if (unit.step != step_ || running_ == unit.key) return;
    running_ = unit.key;
    order_.backward(unit.key);
    const auto next = order_.backward_within(horizon_);
    soon.insert(soon.end(), next.begin(), next.end());
  }
  fetch(soon);
}

void Microbatches::fetch(const std::vector<UnitKey>& soon) {
  for (const UnitKey& key : soon) {
    std::vector<std::shared_ptr<SavedStorage>> storages;
    {
      const Lock lock(mutex_);
      const auto found = units_.find(key);
      const auto unit = found == units_.end() ? nullptr : found->second.lock();
      if (unit == nullptr) continue;
      for (const auto& one : unit->storages) {
        if (auto storage = one.lock()) storages.push_back(std::move(storage));
      }
    }
    const auto consumer = c10::cuda::getCurrentCUDAStream();
    bool began = false;
    // The backward pass uses the latest first.
    for (auto storage = storages.rbegin(); storage != storages.rend(); ++storage)
      began = (*storage)->prefetch(consumer) || began;
    const Lock lock(mutex_);
    if (began && running_ != key) ++stats_.ahead;
  }
}

Microbatches::Stats Microbatches::stats() const {
  const Lock lock(mutex_);
  Stats now = stats_;
  now.batches = order_.batches();
  now.straight_batches = order_.straight();
  return now;
}

}  // namespace spillway
