// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/device_runtime.h"

#include "allocator/device/pool_scope.h"
#include "allocator/lifetime/memory_events.h"
#include "allocator/lifetime/recorder.h"
#include "allocator/tag/tag.h"

#include <string>
#include <utility>

namespace spillway {
namespace {

std::atomic<DeviceRuntime::ModelStateNeed> model_state_need_source{nullptr};

}  // namespace

void DeviceRuntime::set_model_state_need(ModelStateNeed source) {
  model_state_need_source = source;
}

Result<std::unique_ptr<DeviceRuntime>> DeviceRuntime::create(const driver::Device& device,
                                                             const RuntimeOptions& options,
                                                             Evictable& evictable) {
  if (!options.node_pinned_limit.zero()) {
    SPILLWAY_RETURN_IF_ERROR(NodeLedger(options.ledger).check());
  }
  std::unique_ptr<DeviceRuntime> made(new DeviceRuntime(device, evictable));
  HeapOptions heap_options;
  heap_options.offloaded = &made->offloaded_;
  heap_options.name_of = tag_name;
  heap_options.replay = options.plan_replay;
  SPILLWAY_ASSIGN_OR_RETURN(made->heap_, Heap::create(device, heap_options));
  made->budget_ = std::make_unique<DeviceBudget>(device, *made->heap_);
  made->limits_ = std::make_unique<DeviceLimits>(device, *made->heap_);
  SPILLWAY_RETURN_IF_ERROR(
      made->limits().set(DeviceLimits::Limit::kAbsolute, options.memory_limit));
  PinnedOptions pinned;
  pinned.limit = options.pinned_limit;
  pinned.node_limit = options.node_pinned_limit;
  pinned.ledger = options.ledger;
  pinned.ahead = true;
  made->arena_ = std::make_unique<HostArena>(device, pinned);
  SPILLWAY_ASSIGN_OR_RETURN(made->copies_, CopyEngine::create(device));
  made->residency_ =
      std::make_unique<Residency>(*made->heap_, *made->arena_, *made->copies_, made->offloaded_);
  made->pauses_ =
      std::make_unique<PauseManager>(*made->heap_, *made->arena_, *made->copies_, made->offloaded_);
  made->exports_ = std::make_unique<Exports>(*made->heap_);
  made->imports_ = std::make_unique<Imports>(device);
  return made;
}

DeviceRuntime::~DeviceRuntime() {
  if (!copies_) return;
  // Heap and arena have fences of the copy engine, so it is destroyed last, after its copies have
  // ended.
  copies_->drain_sync();
  imports_.reset();
  exports_.reset();
  pauses_.reset();
  residency_.reset();
  arena_.reset();
  limits_.reset();
  budget_.reset();
  heap_.reset();
}

Result<driver::DevicePtr> DeviceRuntime::allocate(Bytes size, driver::Stream stream, PoolId pool) {
  const TagId tag = current_tag();
  const PoolId where = pool == PoolId::kShared ? current_pool() : pool;
  Result<driver::DevicePtr> block =
      heap_->allocate(size, stream, tag, where, ModelStateBlocks::use());
  if (!block.ok() && block.status().code() == Code::kOutOfDeviceMemory) {
    block = allocate_under_pressure(size, stream, where);
  }
  if (!block.ok() || size.zero()) return block;
  const bool model_state = ModelStateBlocks::active();
  const bool follows = curve_.on();
  const bool reports = MemoryEvents::on();
  const Bytes rounded =
      follows || reports || model_state ? heap_->find(block.value()).size : Bytes{};
  if (model_state) model_state_.change(rounded.count());
  if (follows && !(model_state && !model_state_.need().zero())) curve_.born(rounded);
  if (step_peaks_.on())
    step_peaks_.allocated(size, heap_->view().allocated(), Bytes{offloaded_.load()});
  if (reports) {
    MemoryEvents::born({.device = device_.id,
                        .address = block.value().address(),
                        .requested = size,
                        .rounded = rounded,
                        .tag = tag,
                        .stream = reinterpret_cast<std::uint64_t>(stream.handle()),
                        .pool = static_cast<std::uint64_t>(where)});
  }
  return block;
}

bool DeviceRuntime::free(driver::DevicePtr at) {
  if (MemoryEvents::on()) MemoryEvents::died(device_.id, at.address());
  const bool model_state = ModelStateBlocks::active();
  if (model_state || curve_.on()) {
    const HeapBlockInfo block = heap_->find(at);
    if (block.allocated && block.at == at) left(block, model_state);
  }
  pauses_->freed(at);
  exports_->freed(at);
  return heap_->free(at);
}

void DeviceRuntime::left(const HeapBlockInfo& block, bool model_state) {
  if (!model_state || model_state_.need().zero()) curve_.died(block.at.address(), block.size);
  if (!model_state) return;
  curve_.model_state_died(block.at.address());
  model_state_.change(-block.size.count());
}

Bytes DeviceRuntime::begin_step() {
  const ModelStateNeed source = model_state_need_source;
  model_state_.begin_step(source == nullptr ? ModelStateTerms{} : source(*this));
  const Bytes allocated = heap_->view().allocated();
  return model_state_.need().zero() ? allocated : saturating_sub(allocated, model_state_.bytes());
}

Status DeviceRuntime::start_recording(const std::string& path, std::size_t most) {
  RecordingOptions options;
  options.granularity = heap_->view().granularity();
  options.device = device_.id;
  options.path = path;
  options.most = most;
  return LifetimeRecorder::instance().start(options);
}

Status DeviceRuntime::record_use(driver::DevicePtr at, driver::Stream stream) {
  SPILLWAY_RETURN_IF_ERROR(heap_->check_stream(stream));
  if (heap_->record_use(at, stream)) return {};
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        "the address is not in an allocated block of Spillway's heap");
}

Status DeviceRuntime::enable_peer(DeviceId peer) {
  SPILLWAY_RETURN_IF_ERROR(heap_->enable_peer(peer));
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Device reader, driver::Device::open(*device_.api, peer));
  return imports_->enable_peer(reader);
}

void DeviceRuntime::set_role(driver::DevicePtr at, TagId role) {
  const HeapBlockInfo block = heap_->find(at);
  if (!block.allocated || block.tag == role || !is_role(tag_name(block.tag))) return;
  heap_->retag(at, role);
  if (MemoryEvents::on()) MemoryEvents::retagged(device_.id, block.at.address(), role);
}

}  // namespace spillway
