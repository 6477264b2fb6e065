// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "emulator/device/captures.h"
#include "emulator/device/dice.h"
#include "emulator/device/ordering.h"
#include "emulator/device/settings.h"
#include "emulator/device/stream.h"

#include <cuda.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <unordered_set>
#include <vector>

namespace spillway::emulator {

inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

/// The stream queues and their schedule.
///
/// eager: entries run at once. late: entries run on demand, at a synchronization, an emulated
/// operator on the stream or behind an event that it waits for, a host function, or the third
/// query. shuffled: in between. At every submission, wait, query and synchronization a generator
/// decides how many entries of which streams run. There is no other thread, so a program with one
/// thread has one outcome per schedule and seed.
///
/// Threads: under the machine's lock, which is released while an entry runs without it.
/// Ownership: owns streams and events; borrows lock, ordering, captures and clock. A destroyed
/// stream stays, and is ordered with the default stream, until its work is complete and no event or
/// wait refers to it.
class Streams {
 public:
  Streams(Mutex& mutex,
          Ordering& ordering,
          Captures& captures,
          Clock& clock,
          Schedule schedule,
          int devices);

  /// A priority outside [kGreatestPriority, kLeastPriority] is clamped.
  Stream* create(int device, bool blocking, int priority);
  /// Null if there is no such stream. `device` determines the default stream of a null handle, or
  /// the per-thread one, which is created on first use.
  Stream* find(CUstream handle, int device);
  void destroy(Stream* stream);

  Event* create_event(int device, bool timed);
  Event* find(CUevent handle);
  void destroy(Event* event);

  /// Appends to the stream, after the work that the default stream's rules order before it, and
  /// notifies the order checker. If the stream captures, it becomes a node of the graph instead.
  void submit(Stream& stream, Operation operation);
  /// Likewise for several operations without an order among them. Requires: no capture.
  void submit_unordered(Stream& stream, std::vector<Operation> operations);
  void record(Event& event, Stream& stream);
  /// Waits for the event's latest record; later records do not affect this wait.
  /// Errors: of captures, see Captures::wait.
  CUresult wait(Stream& stream, const Event& event);
  /// Submits a whole graph to the stream, after the graph's last launch. Requires: no capture.
  void launch(Stream& stream, const std::shared_ptr<Executable>& graph);

  /// Adds a cost to the running operation, or to the next node.
  void add_cost(Stream& stream, const Cost& cost);
  /// From the first to the second. Errors: CUDA_ERROR_NOT_READY.
  CUresult elapsed(const Event& from, const Event& to, float* milliseconds) const;

  /// Virtual: the end of all work submitted to the device, and the host's time if later; in
  /// seconds.
  [[nodiscard]] double end(int device) const;

  /// Runs all entries that the next operation on `stream` is ordered after, as the synchronizing
  /// functions do. If an entry waits for a value in memory, other entries run first. Then the lock
  /// is released until another thread has written the value.
  void drain(Stream& stream);

  /// The host waits until its work is complete.
  void synchronize(Stream& stream);
  void synchronize(Event& event);
  void synchronize_device(int device);
  /// Whether its work is complete. At most two consecutive "no" answers, so that polling ends. With
  /// a virtual clock: whether the host's time has reached its end; each query advances that time.
  bool query(Stream& stream);
  bool query(Event& event);

  /// For the checker: begins an operation after the work that the default stream's rules order
  /// before it.
  void begin(Stream& stream);

 private:
  void enqueue(Stream& stream, Operation operation);
  void enqueue_record(Event& event, Stream& stream);
  void enqueue_wait(Stream& stream, const Event& event);
  void enqueue_node(Stream& stream, const GraphNode& node);
  /// Virtual: the stream waits until that time.
  static void reach(Stream& stream, double time);
  /// Runs entries by the schedule after a submission. The program may wait for its own functions
  /// without CUDA, so they run `now`.
  void submitted(Stream& stream, bool now);
  void order_with_default(Stream& stream);
  /// Frees destroyed streams that have completed.
  void sweep();
  void depart(const Stream& stream);
  static void depend(Stream& stream, Stream& on, std::uint64_t until);
  /// Whether the first entry of the stream can run now.
  static bool can_run(const Stream& stream);
  /// False if an entry waits for a value in memory and `force` is not set.
  bool run_to(Stream& stream, std::uint64_t point, bool force);
  /// With a shuffled schedule: runs as many entries, of any streams, as the generator decides.
  void shuffle();
  /// Runs one ready entry. False if there is none.
  bool run_any();
  /// Releases the lock while an entry runs without it, which clang cannot analyze.
  void run_front(Stream& stream) SPILLWAY_ATTRIBUTE(no_thread_safety_analysis);

  /// The work of streams that no longer exist.
  struct Departed {
    VectorClock clock;
    double time = 0;
  };

  Mutex& mutex_;
  Ordering& ordering_;
  Captures& captures_;
  Clock& clock_;
  const Schedule::Kind schedule_;
  Dice dice_;
  std::condition_variable_any ran_;
  std::size_t value_waits_ = 0;  // queued entries with a `ready`
  std::vector<std::shared_ptr<Stream>> all_;
  std::size_t destroyed_ = 0;  // number of destroyed streams among them
  std::size_t sweep_at_ = 1;   // number of destroyed streams that triggers sweep()
  std::uint64_t created_ = 0;
  std::deque<std::shared_ptr<Stream>> gone_;  // the latest ones

  struct Siblings {
    std::vector<Stream*> streams;  // the default stream first
    std::size_t created = 0;
    Departed blocking;  // the default stream is ordered after these
    Departed all;       // a wait for the device is ordered after these
  };

  std::vector<Siblings> by_device_;
  std::unordered_set<Stream*> living_;
  std::unordered_set<Event*> events_;
};

}  // namespace spillway::emulator
