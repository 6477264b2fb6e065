// SPDX-License-Identifier: Apache-2.0
// The schedule of the queues' entries.
#include "emulator/device/streams.h"
#include "emulator/device/thread_state.h"
#include "emulator/threads/host_thread.h"

#include <chrono>
#include <utility>
#include <vector>

namespace spillway::emulator {
namespace {

constexpr int kPollsBeforeDone = 2;
/// Polling interval of a thread that waits for a value in memory; writes by other threads raise no
/// event.
constexpr std::chrono::milliseconds kLook{1};

}  // namespace

void Streams::drain(Stream& stream) {
  order_with_default(stream);
  run_to(stream, stream.submitted, true);
}

void Streams::synchronize(Stream& stream) {
  const auto kept = stream.self.lock();  // the lock may be released: the stream may be destroyed
  order_with_default(stream);
  const double time = stream.time;  // work submitted meanwhile is not waited for
  drain(stream);
  clock_.host_reaches(time);
  ordering_.host_learns(stream.actor);
}

void Streams::synchronize(Event& event) {
  if (event.stream == nullptr) return;
  const VectorClock clock = event.clock;  // as above, the event
  const double time = event.virtual_time;
  run_to(*event.stream, event.point, true);
  clock_.host_reaches(time);
  ordering_.host_learns(clock);
}

void Streams::synchronize_device(int device) {
  const Siblings& siblings = by_device_[static_cast<std::size_t>(device)];
  const Departed departed = siblings.all;
  std::vector<std::shared_ptr<Stream>> streams;  // streams may be destroyed and created meanwhile
  for (Stream* stream : siblings.streams)
    streams.push_back(stream->self.lock());
  for (const auto& stream : streams) {
    const double time = stream->time;
    run_to(*stream, stream->submitted, true);
    clock_.host_reaches(time);
    ordering_.host_learns(stream->actor);
  }
  clock_.host_reaches(departed.time);
  ordering_.host_learns(departed.clock);
  streams.clear();
  if (destroyed_ != 0) sweep();
}

bool Streams::query(Stream& stream) {
  const auto kept = stream.self.lock();  // as above
  order_with_default(stream);
  shuffle();
  const std::uint64_t point = stream.submitted;
  if (clock_.is_virtual()) {
    if (stream.time > clock_.host()) return false;
  } else if (stream.done < point && ++stream.polls <= kPollsBeforeDone) {
    return false;
  }
  if (!run_to(stream, point, false)) return false;
  ordering_.host_learns(stream.actor);
  return true;
}

bool Streams::query(Event& event) {
  if (event.stream == nullptr) return true;
  shuffle();
  if (clock_.is_virtual()) {
    if (event.virtual_time > clock_.host()) return false;
  } else if (event.stream->done < event.point && ++event.polls <= kPollsBeforeDone) {
    return false;
  }
  const VectorClock clock = event.clock;  // as above
  if (!run_to(*event.stream, event.point, false)) return false;
  ordering_.host_learns(clock);
  return true;
}

bool Streams::run_to(Stream& target, std::uint64_t point, bool force) {
  // A list instead of recursion: chains of streams that wait for each other can be long.
  std::vector<std::pair<std::shared_ptr<Stream>, std::uint64_t>> needed{
      {target.self.lock(), point}};
  while (!needed.empty()) {
    const auto [stream, until] = needed.back();
    if (schedule_ == Schedule::Kind::kShuffled && dice_.one_in(4)) run_any();
    if (stream->done >= until) {
      needed.pop_back();
    } else if (stream->running) {
      ran_.wait(mutex_);
    } else if (can_run(*stream)) {
      run_front(*stream);
    } else if (const Entry& next = stream->queue.front();
               next.waits_for != nullptr && next.waits_for->done < next.until) {
      needed.emplace_back(next.waits_for, next.until);
    } else if (!force) {
      return false;
    } else if (!run_any()) {
      ran_.wait_for(mutex_, kLook);
    }
  }
  return true;
}

bool Streams::can_run(const Stream& stream) {
  if (stream.queue.empty() || stream.running) return false;
  const Entry& next = stream.queue.front();
  if (next.waits_for != nullptr && next.waits_for->done < next.until) return false;
  return !next.ready || next.ready();
}

void Streams::shuffle() {
  if (schedule_ != Schedule::Kind::kShuffled) return;
  while (dice_.go_on() && run_any()) {
  }
}

bool Streams::run_any() {
  std::vector<Stream*> ready;
  for (const auto& stream : all_) {
    if (can_run(*stream)) ready.push_back(&*stream);
  }
  if (ready.empty()) return false;
  const bool shuffled = schedule_ == Schedule::Kind::kShuffled;
  run_front(*ready[shuffled ? dice_.below(ready.size()) : 0]);
  return true;
}

void Streams::run_front(Stream& stream) {
  const Entry entry = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (entry.ready) --value_waits_;
  if (entry.runs == Operation::Runs::kUnderLock) {
    if (entry.work) entry.work();
    ++stream.done;
    return;
  }
  VectorClock learnt;
  stream.running = true;
  mutex_.unlock();
  if (entry.runs == Operation::Runs::kProgram) {
    const InHostFunction guard;
    AsStream thread(stream.actor, entry.knows);
    entry.work();
    learnt = thread.clock();
  } else {
    entry.work();
  }
  mutex_.lock();
  ordering_.order_after(stream.actor, learnt);
  stream.running = false;
  ++stream.done;
  ran_.notify_all();
}

}  // namespace spillway::emulator
