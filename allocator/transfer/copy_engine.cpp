// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/copy_engine.h"

#include <array>
#include <map>

namespace spillway {

using driver::Fence;
using driver::Stream;
using driver::Timeline;

struct CopyEngine::State {
  State(const driver::Device& on, CUstream out_stream, CUstream in_stream)
      : device(on), out(on, Stream(out_stream)), in(on, Stream(in_stream)) {}

  /// Makes `queue` wait for everything submitted to `stream` so far.
  Status wait_for_stream(const Timeline& queue, Stream stream) {
    SPILLWAY_ASSIGN_OR_RETURN(const Fence so_far, timeline_of(stream).mark());
    return Timeline::wait(queue.stream(), so_far);
  }

  /// The fence of the copy just queued. Where none can be had, nobody could wait for the copy, so
  /// it is waited for here.
  Result<Fence> fence_of_copy(Timeline& queue) const {
    Result<Fence> fence = queue.mark();
    if (!fence.ok()) {
      driver::count_host_sync();
      device.api->StreamSynchronize(
          queue.stream().handle());  // fails only where nothing runs any more
    }
    return fence;
  }

  Timeline& timeline_of(Stream stream) {
    const Lock lock(mutex);
    return others.try_emplace(stream.handle(), device, stream).first->second;
  }

  const driver::Device device;
  Timeline out;
  Timeline in;
  Mutex mutex;
  std::map<CUstream, Timeline> others SPILLWAY_GUARDED_BY(mutex);  // producers and consumers
};

CopyEngine::CopyEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<CopyEngine>> CopyEngine::create(const driver::Device& device) {
  const driver::Api& api = *device.api;
  const driver::CurrentDevice current(api, device.context);
  CUstream out = nullptr;
  CUstream in = nullptr;
  SPILLWAY_RETURN_IF_ERROR(
      SPILLWAY_CALL(api, StreamCreateWithPriority, &out, CU_STREAM_NON_BLOCKING, 0));
  if (Status status = SPILLWAY_CALL(api, StreamCreateWithPriority, &in, CU_STREAM_NON_BLOCKING, 0);
      !status.ok()) {
    api.StreamDestroy(out);
    return status;
  }
  return std::unique_ptr<CopyEngine>(new CopyEngine(std::make_unique<State>(device, out, in)));
}

CopyEngine::~CopyEngine() {
  const driver::Device device = state_->device;
  const driver::CurrentDevice current(*device.api, device.context);
  const std::array<CUstream, 2> streams = {state_->out.stream().handle(),
                                           state_->in.stream().handle()};
  for (CUstream stream : streams)
    device.api->StreamSynchronize(stream);
  state_.reset();
  for (CUstream stream : streams)
    device.api->StreamDestroy(stream);
}

Result<Fence> CopyEngine::to_host(driver::DevicePtr source, HostSlot& slot, Stream producer) {
  State& state = *state_;
  const driver::CurrentDevice current(*state.device.api, state.device.context);
  SPILLWAY_RETURN_IF_ERROR(state.wait_for_stream(state.out, producer));
  for (const Fence fence : slot.fences) {
    SPILLWAY_RETURN_IF_ERROR(Timeline::wait(state.out.stream(), fence));
  }
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*state.device.api,
                                         MemcpyDtoHAsync,
                                         slot.data,
                                         source.address(),
                                         slot.size.count(),
                                         state.out.stream().handle()));
  SPILLWAY_ASSIGN_OR_RETURN(const Fence written, state.fence_of_copy(state.out));
  slot.fences.clear();
  return written;
}

Result<Fence> CopyEngine::to_device(const HostSlot& slot,
                                    Fence written,
                                    driver::DevicePtr destination,
                                    Stream consumer) {
  State& state = *state_;
  const driver::CurrentDevice current(*state.device.api, state.device.context);
  SPILLWAY_RETURN_IF_ERROR(Timeline::wait(state.in.stream(), written));
  SPILLWAY_RETURN_IF_ERROR(state.wait_for_stream(state.in, consumer));
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*state.device.api,
                                         MemcpyHtoDAsync,
                                         destination.address(),
                                         slot.data,
                                         slot.size.count(),
                                         state.in.stream().handle()));
  return state.fence_of_copy(state.in);
}

Stream CopyEngine::out_stream() const {
  return state_->out.stream();
}

Stream CopyEngine::in_stream() const {
  return state_->in.stream();
}

}  // namespace spillway
