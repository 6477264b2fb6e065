// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

namespace spillway {

/// When the block of a request was freed.
enum class BlockEnd : std::uint8_t {
  kNone,      // not before the end of the next step
  kOwnStep,   // in its own step
  kNextStep,  // in the next step, before the same request was repeated
};

/// One of a step's requests of one stream. Time is the number of the stream's requests so far.
struct StepRequest {
  Bytes requested;
  Bytes size;              // rounded
  std::uint32_t died = 0;  // number of requests at its free, in the step of the free
  BlockEnd end = BlockEnd::kNone;
  bool fenced = false;      // a copy or another stream used it when it was freed
  bool offloadable = true;  // it was not pinned, evicted or shared, so a plan may place it
  TagId tag = TagId::kUntagged;
};

/// A request of a step, or the free of its block.
struct StepEvent {
  std::uint32_t request;
  bool freed;
};

/// A stream's requests between two step ends, in order.
struct StepSequence {
  CUstream stream = nullptr;
  std::vector<StepRequest> requests;
  std::vector<StepEvent> events;  // of the later one of the two steps
};

/// Records the requests of steps until two consecutive steps match. Threads: safe.
class StepRecorder {
 public:
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Starts recording at the next request, or stops.
  void set_enabled(bool on);

  void allocated(CUstream stream, driver::DevicePtr at, Bytes requested, Bytes size, TagId tag);
  /// `fenced`, `offloadable`: as in StepRequest. Ignores blocks allocated before the last step.
  void freed(driver::DevicePtr at, bool fenced, bool offloadable);

  /// Ends the step. If the stream with the most requested bytes repeated the previous step's
  /// requests, returns its sequence. Each block's lifetime is the longer one of the two steps.
  std::optional<StepSequence> end_step();

 private:
  using Sequences = std::map<CUstream, StepSequence>;

  struct RequestKey {
    CUstream stream;
    std::uint32_t index;
  };

  /// Steps with more requests get no replay plan, because placing them would take too long.
  static constexpr std::size_t kMaxRequests = 1U << 16U;

  std::atomic<bool> on_{true};
  Mutex mutex_;
  Sequences before_ SPILLWAY_GUARDED_BY(mutex_);
  Sequences now_ SPILLWAY_GUARDED_BY(mutex_);
  std::unordered_map<CUdeviceptr, RequestKey> allocated_
      SPILLWAY_GUARDED_BY(mutex_);  // of the running step
  std::unordered_map<CUdeviceptr, RequestKey> left_
      SPILLWAY_GUARDED_BY(mutex_);  // of the previous step
};

}  // namespace spillway
