// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/cuda_allocator/side_stream.h"

#include "torch_glue/base/check.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <array>
#include <mutex>
#include <optional>
#include <utility>

namespace spillway {

namespace {

/// What this thread has entered, and from where.
thread_local constinit SideStream* entered_side = nullptr;
thread_local std::optional<c10::cuda::CUDAStream> left_from;

}  // namespace

std::atomic<bool> SideStream::exists_{false};

SideStream* SideStream::find_entered(cudaStream_t stream) {
  return entered_side == nullptr || entered_side->stream_.stream() != stream ? nullptr
                                                                             : entered_side;
}

c10::cuda::CUDAStream SideStream::home() {
  return *left_from;
}

SideStream::SideStream(DeviceRuntime& device, CUstream made)
    : stream_(c10::cuda::getStreamFromExternal(made,
                                               static_cast<c10::DeviceIndex>(device.device().id))),
      work_(device.device(), stream_of(stream_)),
      homes_(device.device()) {}

std::atomic<SideStream*>& SideStream::known(c10::DeviceIndex device) {
  static std::array<std::atomic<SideStream*>, C10_COMPILE_TIME_MAX_GPUS> all{};
  return all.at(static_cast<std::size_t>(device));
}

SideStream* SideStream::of(DeviceRuntime& device) {
  static LightMutex mutex;
  auto& found = known(static_cast<c10::DeviceIndex>(device.device().id));
  if (SideStream* const made = found) return made;
  const LightLock lock(mutex);
  if (found != nullptr) return found;
  const driver::Device& on = device.device();
  const driver::CurrentDevice current(*on.api, on.context);
  CUstream made = nullptr;
  if (!SPILLWAY_CALL(*on.api, StreamCreateWithPriority, &made, CU_STREAM_NON_BLOCKING, 0).ok())
    return nullptr;
  found = new SideStream(device, made);
  exists_ = true;
  return found;
}

bool SideStream::enter(DeviceRuntime& device) {
  const c10::cuda::CUDAStream now = current_stream(device.device().id);
  if (entered_side != nullptr || SpillwayAllocator::instance().captures(now.stream())) return false;
  SideStream* const side = of(device);
  if (side == nullptr) return false;
  check(side->homes_.of(stream_of(now)).order_before(stream_of(side->stream_)));
  left_from = now;
  entered_side = side;
  c10::cuda::setCurrentCUDAStream(side->stream_);
  return true;
}

void SideStream::leave() {
  SideStream* const left = std::exchange(entered_side, nullptr);
  if (left == nullptr) return;
  const DeviceId device = left->work_.device();
  if (current_stream(device) == left->stream_) c10::cuda::setCurrentCUDAStream(home());
  const LightLock lock(left->mutex_);
  const auto end = left->work_.mark();
  left->last_ = end.ok() ? end.value() : left->work_.promise();
}

void SideStream::take(const driver::FenceSet& uses) {
  const driver::Stream stream = stream_of(stream_);
  check(homes_.of(stream_of(home())).order_before(stream));
  check(uses.wait(stream).status());
}

void SideStream::join(c10::cuda::CUDAStream stream) {
  SideStream* const side = known(stream.device_index());
  if (side == nullptr || side->stream_ == stream) return;
  driver::Fence last;
  {
    const LightLock lock(side->mutex_);
    last = side->last_;
  }
  if (!last.set()) return;
  if (driver::Timeline::passed(last)) {
    const LightLock lock(side->mutex_);
    if (side->last_ == last) side->last_ = {};
    return;
  }
  if (SpillwayAllocator::instance().captures(stream.stream())) {
    // A replay does not wait.
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    return check(driver::Timeline::wait_sync(last));
  }
  check(driver::Timeline::wait(stream_of(stream), last));
}

}  // namespace spillway
