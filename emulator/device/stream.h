// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/clock.h"
#include "emulator/device/order_checker.h"

#include <cuda.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace spillway::emulator {

struct Capture;
struct GraphNode;
struct Stream;

/// Bytes that an operation reads or writes, for the order checker.
struct Access {
  Strided bytes;
  bool write;
  const char* operation;  // lives as long as the process
};

/// Work for a stream: an entry of its queue, or, while it captures, a node of a graph.
struct Operation {
  enum class Runs {
    kUnderLock,
    kUnlocked,  // computes, and calls no CUDA function
    kProgram    // unlocked; the program's own function, which must not call CUDA
  };

  std::function<void()> work;
  CUgraphNodeType kind = CU_GRAPH_NODE_TYPE_EMPTY;
  const char* name = "";  // lives as long as the process
  std::vector<Access> accesses;
  Runs runs = Runs::kUnderLock;
  Cost cost{};
  std::function<bool()> ready{};  // set if it waits for a value in memory
};

/// One entry of a stream's queue. A waiting entry has no other effect.
struct Entry {
  std::function<void()> work;
  Operation::Runs runs = Operation::Runs::kUnderLock;
  std::shared_ptr<Stream> waits_for{};  // until that stream has completed `until` entries
  std::uint64_t until = 0;
  std::function<bool()> ready{};  // if set, it must not run before this returns true
  VectorClock knows{};            // the knowledge that the program's function is ordered after
};

struct Stream {
  int device;
  bool blocking;  // ordered with the device's default stream
  bool legacy;    // the device's default stream
  int priority;
  std::uint64_t id;
  Actor actor;
  std::deque<Entry> queue{};
  std::uint64_t submitted = 0;
  std::uint64_t done = 0;
  int polls = 0;
  bool running = false;    // an entry is running without the lock
  bool destroyed = false;  // by the program; its submitted work still runs
  double time = 0;         // virtual: end of its submitted work
  Cost next_cost{};        // while capturing: cost of its next node

  std::shared_ptr<Capture> capture{};  // null: not capturing
  std::vector<GraphNode*> tail{};      // while capturing: predecessors of the next node
  std::weak_ptr<Stream> self{};
};

struct Event {
  int device;
  bool timed;
  std::shared_ptr<Stream> stream{};  // null: never recorded
  std::uint64_t point = 0;
  VectorClock clock{};
  std::chrono::steady_clock::time_point time{};
  double virtual_time = 0;
  int polls = 0;
  bool interprocess = false;  // a record runs its stream up to it: other processes cannot wait

  std::shared_ptr<Capture> capture{};  // its last record was part of that capture
  std::vector<GraphNode*> tail{};      // then: predecessors of a waiting node
};

}  // namespace spillway::emulator
