// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/streams.h"

#include "emulator/device/counts.h"
#include "emulator/device/thread_state.h"
#include "emulator/device/views.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace spillway::emulator {
namespace {

constexpr std::size_t kKeptGone = 64;  // so that a stale handle is not reused soon

}  // namespace

// NOLINTNEXTLINE(readability-function-size): what it borrows
Streams::Streams(Mutex& mutex,
                 Ordering& ordering,
                 Captures& captures,
                 Clock& clock,
                 Schedule schedule,
                 int devices)
    : mutex_(mutex),
      ordering_(ordering),
      captures_(captures),
      clock_(clock),
      schedule_(schedule.kind),
      dice_(schedule.seed),
      by_device_(static_cast<std::size_t>(devices)) {
  for (int device = 0; device < devices; ++device)
    create(device, true, 0);
}

Stream* Streams::create(int device, bool blocking, int priority) {
  if (destroyed_ >= sweep_at_) sweep();
  Siblings& siblings = by_device_[static_cast<std::size_t>(device)];
  const bool legacy = siblings.streams.empty();
  std::string name =
      legacy ? std::string("the default stream") : "stream " + std::to_string(siblings.created);
  ++siblings.created;
  name += " of device " + std::to_string(device);
  const Actor actor = ordering_.add_stream(std::move(name));
  all_.push_back(
      std::make_shared<Stream>(Stream{device,
                                      blocking,
                                      legacy,
                                      std::clamp(priority, kGreatestPriority, kLeastPriority),
                                      ++created_,
                                      actor,
                                      {}}));
  Stream* stream = all_.back().get();
  stream->self = all_.back();
  siblings.streams.push_back(stream);
  living_.insert(stream);
  return stream;
}

Stream* Streams::find(CUstream handle, int device) {
  if (handle == nullptr && thread_state().zero_is_own) handle = CU_STREAM_PER_THREAD;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    return by_device_[static_cast<std::size_t>(device)].streams.front();
  }
  if (handle == CU_STREAM_PER_THREAD) {
    Stream*& own = thread_state().own_streams[static_cast<std::size_t>(device)];
    if (own == nullptr) own = create(device, true, 0);
    return own;
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  return living_.contains(stream) ? stream : nullptr;
}

void Streams::destroy(Stream* stream) {
  if (living_.erase(stream) == 0) return;
  stream->destroyed = true;
  ++destroyed_;
  if (destroyed_ >= sweep_at_) sweep();
}

void Streams::sweep() {
  std::erase_if(all_, [this](const std::shared_ptr<Stream>& stream) {
    const bool over = stream->destroyed && stream->queue.empty() && !stream->running &&
                      stream->capture == nullptr && stream.use_count() == 1;
    if (!over) return false;
    depart(*stream);
    gone_.push_back(stream);
    if (gone_.size() > kKeptGone) gone_.pop_front();
    return true;
  });
  sweep_at_ = std::max<std::size_t>(1, 2 * destroyed_);
}

void Streams::depart(const Stream& stream) {
  Siblings& siblings = by_device_[static_cast<std::size_t>(stream.device)];
  std::erase(siblings.streams, &stream);
  const VectorClock point = ordering_.point(stream.actor);
  for (Departed* departed : {&siblings.all, &siblings.blocking}) {
    if (departed == &siblings.blocking && !stream.blocking) continue;
    departed->clock.join(point);
    departed->time = std::max(departed->time, stream.time);
  }
  ordering_.remove_stream(stream.actor);
  --destroyed_;
  // A later stream may have the same handle: invalidates the threads' cached state.
  work_given.fetch_add(1, std::memory_order_release);
  bump_mapping_generation();
}

Event* Streams::create_event(int device, bool timed) {
  auto* event = new Event{device, timed, {}, 0, {}, {}};
  events_.insert(event);
  return event;
}

Event* Streams::find(CUevent handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  return events_.contains(event) ? event : nullptr;
}

void Streams::destroy(Event* event) {
  events_.erase(event);
  delete event;
}

void Streams::depend(Stream& stream, Stream& on, std::uint64_t until) {
  if (&stream == &on || on.done >= until) return;
  stream.queue.push_back({{}, Operation::Runs::kUnderLock, on.self.lock(), until});
  ++stream.submitted;
  work_given.fetch_add(1, std::memory_order_release);
}

void Streams::order_with_default(Stream& stream) {
  const Siblings& siblings = by_device_[static_cast<std::size_t>(stream.device)];
  Stream& legacy = *siblings.streams.front();
  if (&stream == &legacy) {
    ordering_.order_after(stream.actor, siblings.blocking.clock);
    reach(stream, siblings.blocking.time);
    for (Stream* other : siblings.streams) {
      if (!other->blocking || other == &stream) continue;
      ordering_.order_after(stream.actor, other->actor);
      reach(stream, other->time);
      depend(stream, *other, other->submitted);
    }
  } else if (stream.blocking) {
    ordering_.order_after(stream.actor, legacy.actor);
    reach(stream, legacy.time);
    depend(stream, legacy, legacy.submitted);
  }
}

void Streams::submit(Stream& stream, Operation operation) {
  if (stream.capture != nullptr) {
    captures_.add(stream, std::move(operation));
    return;
  }
  const bool now = operation.runs == Operation::Runs::kProgram;
  enqueue(stream, std::move(operation));
  submitted(stream, now);
}

void Streams::submit_unordered(Stream& stream, std::vector<Operation> operations) {
  while (!operations.empty()) {
    const bool shuffled = schedule_ == Schedule::Kind::kShuffled;
    const std::size_t next = shuffled ? dice_.below(operations.size()) : 0;
    enqueue(stream, std::move(operations[next]));
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(next));
  }
  submitted(stream, false);
}

void Streams::enqueue(Stream& stream, Operation operation) {
  begin(stream);
  stream.time = clock_.run(stream.device, stream.time, operation.cost);
  for (const Access& access : operation.accesses)
    ordering_.access(stream.actor, access.bytes, access.write, access.operation);
  stream.queue.push_back({std::move(operation.work), operation.runs});
  if (operation.ready) {
    stream.queue.back().ready = std::move(operation.ready);
    ++value_waits_;
  }
  if (operation.runs == Operation::Runs::kProgram) {
    stream.queue.back().knows = ordering_.point(stream.actor);
  }
  ++stream.submitted;
  work_given.fetch_add(1, std::memory_order_release);
  stream.polls = 0;
}

void Streams::submitted(Stream& stream, bool now) {
  if (now || schedule_ == Schedule::Kind::kEager) {
    run_to(stream, stream.submitted, false);
  } else {
    shuffle();
  }
  if (schedule_ == Schedule::Kind::kEager) {
    while (value_waits_ != 0 && run_any()) {
    }
  }
}

void Streams::record(Event& event, Stream& stream) {
  if (stream.capture != nullptr) {
    Captures::record(event, stream);
    return;
  }
  enqueue_record(event, stream);
  submitted(stream, false);
}

void Streams::enqueue_record(Event& event, Stream& stream) {
  order_with_default(stream);
  stream.queue.push_back({});
  ++stream.submitted;
  stream.polls = 0;
  event.capture = nullptr;
  event.stream = stream.self.lock();
  event.point = stream.submitted;
  event.time = std::chrono::steady_clock::now();
  event.virtual_time = std::max(stream.time, clock_.host());
  event.polls = 0;
  event.clock = ordering_.point(stream.actor);
}

CUresult Streams::wait(Stream& stream, const Event& event) {
  if (stream.capture != nullptr || event.capture != nullptr) return Captures::wait(stream, event);
  enqueue_wait(stream, event);
  shuffle();
  return CUDA_SUCCESS;
}

void Streams::enqueue_wait(Stream& stream, const Event& event) {
  if (event.stream == nullptr) return;
  order_with_default(stream);
  ordering_.order_after(stream.actor, event.clock);
  if (event.stream.get() == &stream) {
    reach(stream, event.virtual_time);
  } else if (event.virtual_time > stream.time) {
    reach(stream, event.virtual_time + clock_.rates().hop);
  }
  depend(stream, *event.stream, event.point);
}

void Streams::launch(Stream& stream, const std::shared_ptr<Executable>& graph) {
  const bool shuffled = schedule_ == Schedule::Kind::kShuffled;
  std::vector<const GraphNode*> order;
  if (shuffled) {
    order = in_order(graph->nodes, [&](std::size_t count) { return dice_.below(count); });
  } else {
    for (const auto& node : graph->nodes)
      order.push_back(node.get());
  }
  enqueue_wait(stream, graph->last);
  bool now = false;
  const double begin = stream.time;
  double end = begin;
  std::vector<double> ends(order.size());  // branches run concurrently
  for (const GraphNode* node : order) {
    stream.time = begin;
    for (const GraphNode* before : node->after)
      reach(stream, ends[before->index]);
    enqueue_node(stream, *node);
    ends[node->index] = stream.time;
    end = std::max(end, stream.time);
    now |= node->operation.runs == Operation::Runs::kProgram;
  }
  stream.time = end;
  enqueue_record(graph->last, stream);
  submitted(stream, now);
}

void Streams::enqueue_node(Stream& stream, const GraphNode& node) {
  if (node.event == nullptr) {
    enqueue(stream, node.operation);
  } else if (Event* event = find(node.event); event != nullptr) {
    if (node.operation.kind == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      enqueue_record(*event, stream);
    } else {
      enqueue_wait(stream, *event);
    }
  }
}

void Streams::reach(Stream& stream, double time) {
  stream.time = std::max(stream.time, time);
}

void Streams::add_cost(Stream& stream, const Cost& cost) {
  if (stream.capture != nullptr) {
    stream.next_cost = cost;
    return;
  }
  order_with_default(stream);
  kernels().add();
  clock_.host_works(clock_.rates().launch);
  stream.time = clock_.run(stream.device, stream.time, cost);
}

CUresult Streams::elapsed(const Event& from, const Event& to, float* milliseconds) const {
  if (clock_.is_virtual()) {
    if (std::max(from.virtual_time, to.virtual_time) > clock_.host()) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>((to.virtual_time - from.virtual_time) * 1e3);
    return CUDA_SUCCESS;
  }
  if (from.stream->done < from.point || to.stream->done < to.point) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(to.time - from.time).count();
  return CUDA_SUCCESS;
}

double Streams::end(int device) const {
  const Siblings& siblings = by_device_[static_cast<std::size_t>(device)];
  double end = std::max(clock_.host(), siblings.all.time);
  for (const Stream* stream : siblings.streams)
    end = std::max(end, stream->time);
  return end;
}

void Streams::begin(Stream& stream) {
  order_with_default(stream);
  ordering_.begin(stream.actor);
}

}  // namespace spillway::emulator
