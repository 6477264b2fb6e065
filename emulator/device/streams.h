// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "emulator/device/dice.h"
#include "emulator/device/ordering.h"
#include "emulator/device/settings.h"

#include <cuda.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

namespace spillway::emulator {

struct Stream;

/// One entry of a stream's queue. An entry that waits does nothing else.
struct Operation {
  std::function<void()> work;
  Stream* waits_for = nullptr;  // until that stream has done `until` entries
  std::uint64_t until = 0;
  bool calls_program = false;  // runs without the machine's lock
  VectorClock knows{};         // what the program's function comes after
};

struct Stream {
  int device;
  bool blocking;  // ordered with the device's default stream
  int priority;
  Actor actor;
  std::deque<Operation> queue;
  std::uint64_t submitted = 0;
  std::uint64_t done = 0;
  int polls = 0;
  bool running = false;  // a function of the program runs, without the lock
};

struct Event {
  int device;
  bool timed;
  Stream* stream = nullptr;  // null: never recorded
  std::uint64_t point = 0;
  VectorClock clock;
  std::chrono::steady_clock::time_point time;
  int polls = 0;
};

/// The queues, and when their entries run.
///
/// eager: at once. late: when somebody needs it: a synchronise, an emulated operator on the stream
/// or behind an event that it waits for, a host function, or the third query. shuffled: between the
/// two; at every submission, wait, query and synchronise a generator decides how many entries of
/// which streams run. There is no other thread, so a program with one thread has one outcome for a
/// schedule and a seed.
///
/// Threads: under the machine's lock, which is given up while a function of the program runs.
/// Ownership: owns streams and events; borrows the lock and the ordering. A destroyed stream stays:
/// events and waits may still name it.
class Streams {
 public:
  Streams(Mutex& mutex, Ordering& ordering, Schedule schedule, int devices);

  Stream* create(int device, bool blocking, int priority);
  /// Null where there is no such living stream. `device` says whose default stream a null handle
  /// is.
  Stream* find(CUstream handle, int device);
  void destroy(Stream* stream);

  Event* create_event(int device, bool timed);
  Event* find(CUevent handle);
  void destroy(Event* event);

  /// Appends to the stream, behind what the default stream's rules order before it.
  void submit(Stream& stream, Operation operation);
  void record(Event& event, Stream& stream);
  /// Captures the event's latest record; a later one changes nothing for this wait.
  void wait(Stream& stream, const Event& event);

  /// Runs everything that the next operation on `stream` must come after.
  void drain(Stream& stream);

  /// The host waits until it is done.
  void synchronize(Stream& stream);
  void synchronize(Event& event);
  void synchronize_device(int device);
  /// Whether it is done; never more than twice "no" in a row, so that polling ends.
  bool query(Stream& stream);
  bool query(Event& event);

  /// For the checker: a new operation begins, behind what the default stream's rules order.
  void begin(Stream& stream);

 private:
  void order_with_default(Stream& stream);
  static void depend(Stream& stream, Stream& on, std::uint64_t until);
  void run_to(Stream& stream, std::uint64_t point);
  /// Where the schedule is shuffled: runs as many entries, of any streams, as the dice say.
  void shuffle();
  /// Runs one entry that nothing holds back. False where there is none.
  bool run_any();
  /// Gives the lock up while a host function runs, which clang cannot follow.
  void run_front(Stream& stream) SPILLWAY_ATTRIBUTE(no_thread_safety_analysis);

  Mutex& mutex_;
  Ordering& ordering_;
  const Schedule::Kind schedule_;
  Dice dice_;
  std::condition_variable_any ran_;
  std::deque<std::unique_ptr<Stream>> all_;
  std::vector<std::vector<Stream*>> by_device_;  // the default stream first
  std::unordered_set<Stream*> living_;
  std::unordered_set<Event*> events_;
};

}  // namespace spillway::emulator
