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

/// The queues, and when their entries run.
///
/// eager: at once. late: when something needs it: a synchronise, an emulated operator on the stream
/// or behind an event that it waits for, a host function, or the third query. shuffled: between the
/// two; at every submission, wait, query and synchronise a generator decides how many entries of
/// which streams run. There is no other thread, so a program with one thread has one outcome for a
/// schedule and a seed.
///
/// Threads: under the machine's lock, which is given up while an entry runs without it.
/// Ownership: owns streams and events; borrows lock, ordering, captures and clock. A destroyed
/// stream stays, and is ordered with the default stream, until it has done its work and no event
/// and no wait names it.
class Streams {
 public:
  Streams(Mutex& mutex,
          Ordering& ordering,
          Captures& captures,
          Clock& clock,
          Schedule schedule,
          int devices);

  /// A priority outside [kGreatestPriority, kLeastPriority] is brought into it.
  Stream* create(int device, bool blocking, int priority);
  /// Null where there is no such living stream. `device` says whose default stream a null handle
  /// is, or the per-thread one, which is made on first use.
  Stream* find(CUstream handle, int device);
  void destroy(Stream* stream);

  Event* create_event(int device, bool timed);
  Event* find(CUevent handle);
  void destroy(Event* event);

  /// Appends to the stream, behind what the default stream's rules order before it, and tells the
  /// order checker. Where the stream captures, it becomes a node of the graph instead.
  void submit(Stream& stream, Operation operation);
  /// The same for several that nothing orders among themselves. Requires: no capture.
  void submit_unordered(Stream& stream, std::vector<Operation> operations);
  void record(Event& event, Stream& stream);
  /// Takes the event's latest record; a later one changes nothing for this wait.
  /// Errors: what captures forbid, see Captures::wait.
  CUresult wait(Stream& stream, const Event& event);
  /// Gives the stream all of a graph, behind the graph's last launch. Requires: no capture.
  void launch(Stream& stream, const std::shared_ptr<Executable>& graph);

  /// The operation that runs now, or becomes the next node, has this cost too.
  void add_cost(Stream& stream, const Cost& cost);
  /// From the first to the second. Errors: CUDA_ERROR_NOT_READY.
  CUresult elapsed(const Event& from, const Event& to, float* milliseconds) const;

  /// Virtual: when all that the device was given has ended, and the host is there; in seconds.
  [[nodiscard]] double end(int device) const;

  /// Runs everything that the next operation on `stream` must come after. As the synchronising
  /// functions: where an entry waits for a value in memory, whatever else can run runs first, and
  /// then the lock is given up until another thread has written it.
  void drain(Stream& stream);

  /// The host waits until it is done.
  void synchronize(Stream& stream);
  void synchronize(Event& event);
  void synchronize_device(int device);
  /// Whether it is done; never more than twice "no" in a row, so that polling ends. With a virtual
  /// clock: whether the host's time has reached it, which each query moves on.
  bool query(Stream& stream);
  bool query(Event& event);

  /// For the checker: a new operation begins, behind what the default stream's rules order.
  void begin(Stream& stream);

 private:
  void enqueue(Stream& stream, Operation operation);
  void enqueue_record(Event& event, Stream& stream);
  void enqueue_wait(Stream& stream, const Event& event);
  void enqueue_node(Stream& stream, const GraphNode& node);
  /// Virtual: the stream waits for that time.
  static void reach(Stream& stream, double time);
  /// Runs what the schedule says after a submission. The program may wait for its own functions
  /// without CUDA: they run `now`.
  void submitted(Stream& stream, bool now);
  void order_with_default(Stream& stream);
  /// Lets destroyed streams go that are over.
  void sweep();
  void depart(const Stream& stream);
  static void depend(Stream& stream, Stream& on, std::uint64_t until);
  /// Whether the first entry of the stream can run now.
  static bool can_run(const Stream& stream);
  /// False where an entry waits for a value in memory and `force` is not set.
  bool run_to(Stream& stream, std::uint64_t point, bool force);
  /// Where the schedule is shuffled: runs as many entries, of any streams, as the dice say.
  void shuffle();
  /// Runs one entry that nothing holds back. False where there is none.
  bool run_any();
  /// Gives the lock up while an entry runs without it, which clang cannot follow.
  void run_front(Stream& stream) SPILLWAY_ATTRIBUTE(no_thread_safety_analysis);

  /// What streams did that are gone.
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
  std::size_t destroyed_ = 0;  // of these
  std::size_t sweep_at_ = 1;   // this many destroyed ones
  std::uint64_t created_ = 0;
  std::deque<std::shared_ptr<Stream>> gone_;  // the last ones

  struct Siblings {
    std::vector<Stream*> streams;  // the default stream first
    std::size_t created = 0;
    Departed blocking;  // what the default stream comes after
    Departed all;       // what a wait for the device comes after
  };

  std::vector<Siblings> by_device_;
  std::unordered_set<Stream*> living_;
  std::unordered_set<Event*> events_;
};

}  // namespace spillway::emulator
