// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/copy_engine.h"

#include "allocator/driver/span_log.h"
#include "allocator/driver/timeline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace spillway {

using driver::Fence;
using driver::Stream;
using driver::Timeline;

namespace {

using Streams = std::array<CUstream, 4>;  // prefetch out and in, demand out and in

/// Creates all of them, or none. Errors: kDriver.
Status make_streams(const driver::Api& api, Streams& streams) {
  for (auto* each = streams.begin(); each != streams.end(); ++each) {
    Status status = SPILLWAY_CALL(api, StreamCreateWithPriority, &*each, CU_STREAM_NON_BLOCKING, 0);
    if (status.ok()) continue;
    while (each != streams.begin())
      api.StreamDestroy(*--each);
    return status;
  }
  return {};
}

}  // namespace

struct CopyEngine::State {
  State(const driver::Device& on, const Streams& streams)
      : device(on),
        queues{Timeline(on, Stream(streams[0], on.id)),
               Timeline(on, Stream(streams[1], on.id)),
               Timeline(on, Stream(streams[2], on.id)),
               Timeline(on, Stream(streams[3], on.id))},
        others(on) {}

  Timeline& queue(CopyDirection direction, CopyPriority priority) {
    return queues.at((priority == CopyPriority::kDemand ? 2U : 0U) +
                     (direction == CopyDirection::kIn ? 1U : 0U));
  }

  /// Queues copies by `submit(stream, queued)`, after `fences` and everything submitted to `other`
  /// so far. If a call fails, or no fence can be created, waits for the queued copies here, because
  /// no caller could.
  template <typename Submit>
  Result<Fence> copy(const Submit& submit,
                     Timeline& queue,
                     Stream other,
                     const driver::FenceSet& fences,
                     Bytes size) {
    for (const Fence fence : fences) {
      SPILLWAY_RETURN_IF_ERROR(wait(queue, fence));
    }
    if (other.device() != device.id) {
      SPILLWAY_RETURN_IF_ERROR(others.of(other).order_before(queue.stream()));
      other = queue.stream();
    }
    if (kind_of(queue) == driver::Span::Kind::kIn) queued_in += size.count();
    bool queued = false;
    Result<Fence> fence = queue.mark_after(other, [&] {
      const driver::SpanLog::Scope timed(device, queue.stream(), kind_of(queue), size);
      return submit(queue.stream(), queued);
    });
    if (!fence.ok() && queued) {
      driver::count_host_sync();
      device.api->StreamSynchronize(
          queue.stream().handle());  // fails only if nothing runs any more
    }
    return fence;
  }

  Result<Fence> copy(
      CopyParts& parts, Timeline& queue, Stream other, const driver::FenceSet& fences, Bytes size) {
    const auto submit = [&](Stream stream, bool& queued) {
      return parts.submit(*device.api, stream, queued);
    };
    return copy(submit, queue, other, fences, size);
  }

  /// For copy(): one copy of at most kCopyPart, which needs no list.
  [[nodiscard]] auto one(CopyDirection direction, driver::DevicePtr at, HostBytes host) const {
    return [this, direction, at, host](Stream stream, bool& queued) {
      Status status = copy_at_once(*device.api, direction, {at, host.data, host.size}, stream);
      queued = status.ok();
      return status;
    };
  }

  /// As Timeline::wait, but without a driver call if the queue has already waited for the same or a
  /// later point of another queue. That is unknown for other streams, because a new stream may have
  /// the same handle.
  Status wait(Timeline& queue, Fence fence) {
    const std::size_t other = index_of(fence.timeline);
    if (other == queues.size()) return Timeline::wait(queue.stream(), fence);
    std::atomic<std::uint64_t>& latest = waited.at(index_of(&queue)).at(other);
    std::uint64_t known = latest.load(std::memory_order_acquire);
    if (fence.point <= known) return {};
    SPILLWAY_RETURN_IF_ERROR(Timeline::wait(queue.stream(), fence));
    while (known < fence.point && !latest.compare_exchange_weak(known, fence.point)) {
    }
    return {};
  }

  [[nodiscard]] driver::Span::Kind kind_of(const Timeline& queue) const {
    return index_of(&queue) % 2 == 0 ? driver::Span::Kind::kOut : driver::Span::Kind::kIn;
  }

  /// The index of the queue; the number of queues if it is none.
  [[nodiscard]] std::size_t index_of(const Timeline* timeline) const {
    std::size_t index = 0;
    while (index < queues.size() && &queues.at(index) != timeline)
      ++index;
    return index;
  }

  const driver::Device device;
  std::array<Timeline, 4> queues;  // as in Streams
  driver::Timelines others;        // of producers and consumers on other devices
  // By queue, and by the queue that it waited for: the latest point.
  std::array<std::array<std::atomic<std::uint64_t>, 4>, 4> waited{};
  std::atomic<std::uint64_t> queued_in{0};  // bytes
};

CopyEngine::CopyEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<CopyEngine>> CopyEngine::create(const driver::Device& device) {
  const driver::CurrentDevice current(*device.api, device.context);
  Streams streams{};
  SPILLWAY_RETURN_IF_ERROR(make_streams(*device.api, streams));
  return std::unique_ptr<CopyEngine>(new CopyEngine(std::make_unique<State>(device, streams)));
}

CopyEngine::~CopyEngine() {
  const driver::Device device = state_->device;
  const driver::CurrentDevice current(*device.api, device.context);
  Streams streams{};
  for (std::size_t each = 0; each < streams.size(); ++each)
    streams.at(each) = state_->queues.at(each).stream().handle();
  drain_sync();
  state_.reset();
  for (CUstream stream : streams)
    device.api->StreamDestroy(stream);
}

Result<Fence> CopyEngine::to_host(std::span<const CopyOut> copies,
                                  Stream producer,
                                  CopyPriority priority) {
  const driver::CurrentDevice current(*state_->device.api, state_->device.context);
  CopyParts parts(CopyDirection::kOut);
  driver::FenceSet fences;
  Bytes size;
  for (const CopyOut& copy : copies) {
    parts.add(copy.source, copy.destination.data, copy.destination.size);
    size += copy.destination.size;
    fences.add(*copy.fences);
  }
  SPILLWAY_ASSIGN_OR_RETURN(
      const Fence written,
      state_->copy(parts, state_->queue(CopyDirection::kOut, priority), producer, fences, size));
  for (const CopyOut& copy : copies)
    *copy.fences = {written};
  return written;
}

Result<Fence> CopyEngine::to_device(std::span<const CopyIn> copies,
                                    Stream consumer,
                                    CopyPriority priority) {
  const driver::CurrentDevice current(*state_->device.api, state_->device.context);
  CopyParts parts(CopyDirection::kIn);
  driver::FenceSet fences;
  Bytes size;
  for (const CopyIn& copy : copies) {
    parts.add(copy.destination, copy.source.data, copy.source.size);
    size += copy.source.size;
    fences.add(copy.written);
  }
  return state_->copy(parts, state_->queue(CopyDirection::kIn, priority), consumer, fences, size);
}

Result<Fence> CopyEngine::to_host(const CopyOut& copy, Stream producer, CopyPriority priority) {
  if (copy.destination.size > kCopyPart) return to_host({&copy, 1}, producer, priority);
  const driver::CurrentDevice current(*state_->device.api, state_->device.context);
  Result<Fence> written =
      state_->copy(state_->one(CopyDirection::kOut, copy.source, copy.destination),
                   state_->queue(CopyDirection::kOut, priority),
                   producer,
                   *copy.fences,
                   copy.destination.size);
  if (written.ok()) *copy.fences = {written.value()};
  return written;
}

Result<Fence> CopyEngine::to_device(const CopyIn& copy, Stream consumer, CopyPriority priority) {
  if (copy.source.size > kCopyPart) return to_device({&copy, 1}, consumer, priority);
  const driver::CurrentDevice current(*state_->device.api, state_->device.context);
  return state_->copy(state_->one(CopyDirection::kIn, copy.destination, copy.source),
                      state_->queue(CopyDirection::kIn, priority),
                      consumer,
                      {copy.written},
                      copy.source.size);
}

Bytes CopyEngine::queued_in() const {
  return Bytes{state_->queued_in};
}

void CopyEngine::drain_sync() {
  const driver::CurrentDevice current(*state_->device.api, state_->device.context);
  driver::count_host_sync();
  for (const Timeline& queue : state_->queues)
    state_->device.api->StreamSynchronize(queue.stream().handle());  // fails if nothing runs
}

Stream CopyEngine::out_stream(CopyPriority priority) const {
  return state_->queue(CopyDirection::kOut, priority).stream();
}

Stream CopyEngine::in_stream(CopyPriority priority) const {
  return state_->queue(CopyDirection::kIn, priority).stream();
}

Status copy_at_once(const driver::Api& api,
                    CopyDirection direction,
                    const OneCopy& copy,
                    driver::Stream stream) {
  const CUdeviceptr at = copy.device.address();
  const std::size_t size = copy.size.count();
  return direction == CopyDirection::kOut
             ? SPILLWAY_CALL(api, MemcpyDtoHAsync, copy.host, at, size, stream.handle())
             : SPILLWAY_CALL(api, MemcpyHtoDAsync, at, copy.host, size, stream.handle());
}

void CopyParts::add(driver::DevicePtr device, std::byte* host, Bytes size) {
  for (Bytes done; done < size; done += kCopyPart) {
    device_.push_back((device + done).address());
    host_.push_back(driver::DevicePtr(host + done.count()).address());
    sizes_.push_back(std::min(kCopyPart, size - done).count());
  }
}

Status CopyParts::submit(const driver::Api& api, driver::Stream stream, bool& queued) {
  for (std::size_t from = 0; from < sizes_.size();) {
    std::size_t to = from + 1;
    std::size_t bytes = sizes_[from];
    while (api.MemcpyBatchAsync != nullptr && to < sizes_.size() &&
           bytes + sizes_[to] <= kCopyPart.count()) {
      bytes += sizes_[to];
      ++to;
    }
    SPILLWAY_RETURN_IF_ERROR(submit(api, stream, from, to));
    queued = true;
    from = to;
  }
  return {};
}

Status CopyParts::submit(const driver::Api& api,
                         driver::Stream stream,
                         std::size_t from,
                         std::size_t to) {
  const bool out = direction_ == CopyDirection::kOut;
  if (to - from > 1) {
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    std::size_t first = 0;
    return SPILLWAY_CALL(api,
                         MemcpyBatchAsync,
                         (out ? host_ : device_).data() + from,
                         (out ? device_ : host_).data() + from,
                         sizes_.data() + from,
                         to - from,
                         &attributes,
                         &first,
                         1,
                         stream.handle());
  }
  auto* const host = static_cast<std::byte*>(driver::DevicePtr(host_[from]).raw());
  return copy_at_once(
      api, direction_, {driver::DevicePtr(device_[from]), host, Bytes{sizes_[from]}}, stream);
}

}  // namespace spillway
