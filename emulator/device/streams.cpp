// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/streams.h"

#include "emulator/device/thread_state.h"
#include "emulator/threads/host_thread.h"

#include <string>
#include <utility>

namespace spillway::emulator {
namespace {

constexpr int kPollsBeforeDone = 2;

}  // namespace

Streams::Streams(Mutex& mutex, Ordering& ordering, Schedule schedule, int devices)
    : mutex_(mutex),
      ordering_(ordering),
      schedule_(schedule.kind),
      dice_(schedule.seed),
      by_device_(static_cast<std::size_t>(devices)) {
  for (int device = 0; device < devices; ++device)
    create(device, true, 0);
}

Stream* Streams::create(int device, bool blocking, int priority) {
  auto& siblings = by_device_[static_cast<std::size_t>(device)];
  std::string name = siblings.empty() ? std::string("the default stream")
                                      : "stream " + std::to_string(siblings.size());
  name += " of device " + std::to_string(device);
  const Actor actor = ordering_.add_stream(std::move(name));
  all_.push_back(std::make_unique<Stream>(Stream{device, blocking, priority, actor, {}}));
  Stream* stream = all_.back().get();
  siblings.push_back(stream);
  living_.insert(stream);
  return stream;
}

Stream* Streams::find(CUstream handle, int device) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    return by_device_[static_cast<std::size_t>(device)].front();
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  return living_.contains(stream) ? stream : nullptr;
}

void Streams::destroy(Stream* stream) {
  if (living_.erase(stream) != 0) ordering_.remove_stream(stream->actor);
}

Event* Streams::create_event(int device, bool timed) {
  auto* event = new Event{device, timed, nullptr, 0, {}, {}};
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
  stream.queue.push_back(Operation{{}, &on, until});
  ++stream.submitted;
}

void Streams::order_with_default(Stream& stream) {
  auto& siblings = by_device_[static_cast<std::size_t>(stream.device)];
  if (&stream == siblings.front()) {
    for (Stream* other : siblings) {
      if (!other->blocking || other == &stream) continue;
      ordering_.order_after(stream.actor, other->actor);
      depend(stream, *other, other->submitted);
    }
  } else if (stream.blocking) {
    ordering_.order_after(stream.actor, siblings.front()->actor);
    depend(stream, *siblings.front(), siblings.front()->submitted);
  }
}

void Streams::submit(Stream& stream, Operation operation) {
  order_with_default(stream);
  if (operation.calls_program) {
    ordering_.begin(stream.actor);
    operation.knows = ordering_.point(stream.actor);
  }
  // The program may wait for its own function.
  const bool now = schedule_ == Schedule::Kind::kEager || operation.calls_program;
  stream.queue.push_back(std::move(operation));
  ++stream.submitted;
  stream.polls = 0;
  if (now) {
    run_to(stream, stream.submitted);
  } else {
    shuffle();
  }
}

void Streams::record(Event& event, Stream& stream) {
  submit(stream, {});
  event.stream = &stream;
  event.point = stream.submitted;
  event.time = std::chrono::steady_clock::now();
  event.polls = 0;
  event.clock = ordering_.point(stream.actor);
}

void Streams::wait(Stream& stream, const Event& event) {
  if (event.stream == nullptr) return;
  order_with_default(stream);
  ordering_.order_after(stream.actor, event.clock);
  depend(stream, *event.stream, event.point);
  shuffle();
}

void Streams::drain(Stream& stream) {
  order_with_default(stream);
  run_to(stream, stream.submitted);
}

void Streams::synchronize(Stream& stream) {
  drain(stream);
  ordering_.host_learns(stream.actor);
}

void Streams::synchronize(Event& event) {
  if (event.stream == nullptr) return;
  const VectorClock clock = event.clock;  // the lock may be given up: the event may go
  run_to(*event.stream, event.point);
  ordering_.host_learns(clock);
}

void Streams::synchronize_device(int device) {
  auto& streams = by_device_[static_cast<std::size_t>(device)];
  // NOLINTNEXTLINE(modernize-loop-convert): a host function may make a stream meanwhile
  for (std::size_t i = 0; i < streams.size(); ++i) {
    Stream& stream = *streams[i];
    run_to(stream, stream.submitted);
    ordering_.host_learns(stream.actor);
  }
}

bool Streams::query(Stream& stream) {
  order_with_default(stream);
  shuffle();
  if (stream.done < stream.submitted && ++stream.polls <= kPollsBeforeDone) return false;
  synchronize(stream);
  return true;
}

bool Streams::query(Event& event) {
  if (event.stream == nullptr) return true;
  shuffle();
  if (event.stream->done < event.point && ++event.polls <= kPollsBeforeDone) return false;
  synchronize(event);
  return true;
}

void Streams::run_to(Stream& target, std::uint64_t point) {
  // A list instead of recursion: two streams that wait for each other in turn can be long.
  std::vector<std::pair<Stream*, std::uint64_t>> needed{{&target, point}};
  while (!needed.empty()) {
    auto [stream, until] = needed.back();
    if (schedule_ == Schedule::Kind::kShuffled && dice_.one_in(4)) run_any();
    if (stream->done >= until) {
      needed.pop_back();
    } else if (stream->running) {
      ran_.wait(mutex_);
    } else if (const Operation& next = stream->queue.front();
               next.waits_for != nullptr && next.waits_for->done < next.until) {
      needed.emplace_back(next.waits_for, next.until);
    } else {
      run_front(*stream);
    }
  }
}

void Streams::shuffle() {
  if (schedule_ != Schedule::Kind::kShuffled) return;
  while (dice_.go_on() && run_any()) {
  }
}

bool Streams::run_any() {
  std::vector<Stream*> ready;
  for (const auto& stream : all_) {
    if (stream->queue.empty() || stream->running) continue;
    const Operation& next = stream->queue.front();
    if (next.waits_for == nullptr || next.waits_for->done >= next.until) ready.push_back(&*stream);
  }
  if (ready.empty()) return false;
  run_front(*ready[dice_.below(ready.size())]);
  return true;
}

void Streams::run_front(Stream& stream) {
  const Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (operation.calls_program) {
    VectorClock learnt;
    stream.running = true;
    mutex_.unlock();
    {
      const InHostFunction guard;
      AsStream thread(stream.actor, operation.knows);
      operation.work();
      learnt = thread.clock();
    }
    mutex_.lock();
    ordering_.order_after(stream.actor, learnt);
    stream.running = false;
    ++stream.done;
    ran_.notify_all();
  } else {
    if (operation.work) operation.work();
    ++stream.done;
  }
}

void Streams::begin(Stream& stream) {
  order_with_default(stream);
  ordering_.begin(stream.actor);
}

}  // namespace spillway::emulator
