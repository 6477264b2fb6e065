// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <optional>

namespace spillway {

struct HeapState;

/// Advises a heap on the placement of blocks in a program that repeats its requests step by step
/// (Heap::placement): a target for the reserved bytes, and replay plans of addresses. It changes
/// only the addresses that requests get, and makes no request fail, except that requests for
/// streamed blocks may fail within a budget (set_streaming). A value that refers to the heap.
/// Threads: safe.
class PlacementAdvisor {
 public:
  explicit PlacementAdvisor(HeapState& state) : state_(&state) {}

  /// Sets a target in reserved bytes. It is a preference and fails no request. Until the target is
  /// reached, the heap maps new memory rather than reuse a block whose fences are pending. Beyond
  /// the target it reuses such blocks first, then releases cached memory, which may block the host.
  /// If no free block fits even then, the heap grows past the target.
  ///
  /// Free memory with pending fences is not merged with other free memory. If more than the target
  /// is reserved, set_target() and end_step() release cached memory, which may block the host. They
  /// do so at most four times for each value of the target. Zero removes the target. The heap then
  /// reuses blocks with pending fences before it maps new memory. end_step() removes a target that
  /// was not set again during the step. Requires: no step is running.
  void set_target(Bytes target);
  /// Marks the end of the program's step. Does nothing unless HeapOptions::replay or a target is
  /// set. After two steps with the same requests, the heap makes a replay plan for those of the
  /// busiest stream. In later steps the same request gets the same address. The heap then reserves
  /// hardly more than the peak of the allocated bytes.
  ///
  /// The heap checks each request's size and stream, and that its address is free. Requests that
  /// differ are served without the replay plan, and after many in a row the rest of the step. After
  /// three steps in a row (one with a target) that differ by more than a 16th of their bytes, or
  /// when the target is smaller than the one that it was made for, it is dropped and the heap
  /// records steps again. Blocks of pools are not in it. Without a
  /// target, neither are blocks that outlive their step, nor those that other streams or copies
  /// use. trim_sync() ends a replay plan. After an out-of-memory error without a target there are
  /// no more replay plans. Stream: blocks the host when a replay plan begins or ends.
  void end_step();

  /// Peak of the reserved bytes since the target was set; zero without a target.
  [[nodiscard]] Bytes most_reserved() const;
  /// HeapStats::stranded at the last set_target() call that was made while no replay plan was
  /// followed. Memory reserved for replay plans is excluded. None without a target, or with a
  /// target of less than HeapLimits::smallest_budget().
  [[nodiscard]] std::optional<Bytes> stranded_at_target() const;
  /// Bytes double-buffered across a step boundary, such as the next batch. Replay plans leave this
  /// much of the target free. Zero until known.
  [[nodiscard]] Bytes double_buffered() const;
  /// Whether model state streams through the device in each of several passes, because it does not
  /// fit; initially not. Large blocks of BlockUse::kStreamed then have chunks of their own. Under a
  /// target, a request for one takes no cached memory of other blocks during a pass (until its
  /// optimizer phase begins), unless more than a third of the target is cached: memory is not
  /// remapped again and again. If a budget has no room the request fails, and the caller offloads
  /// another one, or releases cached memory. Between passes, and where no budget applies, streamed
  /// blocks share cached memory of others. There are no replay plans meanwhile.
  void set_streaming(bool streams);
  [[nodiscard]] bool streaming() const;
  /// Whether steps are recorded and replayed without blocks of BlockUse::kStreamed; initially not.
  /// Where few of them leave in a step, others leave in the next one, so that no two steps would
  /// repeat. Where many leave, they need the memory that a replay plan would keep between passes.
  void replay_without_streamed(bool without);
  /// Ends the pass, and starts the optimizer phase: until the step ends, large blocks get separate
  /// chunks. The first optimizer step allocates persistent state, which then shares no chunk with
  /// temporary blocks. Disabled once a step adds no persistent blocks. No effect without a target
  /// or with a target of few pages.
  void begin_optimizer_phase();
  /// Peak of the reserved bytes since the target was set; similar steps will reserve the same. Zero
  /// if the running step has followed no replay plan, and no value without a target.
  [[nodiscard]] std::optional<Bytes> peak_reserved_following_plan() const;
  /// By how much the replay plan of the last two steps exceeded the room within a job's budget. It
  /// is not followed then, and similar steps need as much more. Zero if it did not, or if there was
  /// none.
  [[nodiscard]] Bytes missing_for_plan() const;
  /// Whether some memory of the current replay plan was not mapped yet when the running step began.
  /// Mapping memory stalls the host.
  [[nodiscard]] bool maps_plan() const;

 private:
  HeapState* state_;
};

}  // namespace spillway
