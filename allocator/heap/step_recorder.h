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

/// What became of the block of a request.
enum class BlockEnd : std::uint8_t {
  kNone,      // it was not freed before the end of the next step
  kOwnStep,   // freed in its own step
  kNextStep,  // freed in the step after it, before the same request was remade
};

/// One of a step's requests of one stream. Time is counted in the stream's requests.
struct StepRequest {
  Bytes requested;
  Bytes size;              // rounded
  std::uint32_t died = 0;  // how many requests had been made by its free, in the step of that
  BlockEnd end = BlockEnd::kNone;
  bool fenced = false;      // a copy or another stream used it when it was freed
  bool offloadable = true;  // nothing else was done with it that needs a block of its own
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
  std::vector<StepEvent> events;  // of the later of the two steps
};

/// Writes down the requests of steps until two in a row are the same.
/// Threads: safe.
class StepRecorder {
 public:
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Begins again with the next request, or stops.
  void turn(bool on);

  void allocated(CUstream stream, driver::DevicePtr at, Bytes requested, Bytes size, TagId tag);
  /// `fenced`, `offloadable`: as in StepRequest. Blocks from before the last step are ignored.
  void freed(driver::DevicePtr at, bool fenced, bool offloadable);

  /// The step is over. Gives the sequence of the stream that asked for the most bytes, where it
  /// made the same requests as in the step before; each block lives there as long as in either of
  /// them.
  std::optional<StepSequence> end_step();

 private:
  using Sequences = std::map<CUstream, StepSequence>;

  struct Place {
    CUstream stream;
    std::uint32_t index;
  };

  /// A step of more requests is not planned: placing them would take too long.
  static constexpr std::size_t kMaxRequests = 1U << 16U;

  std::atomic<bool> on_{true};
  Mutex mutex_;
  Sequences before_ SPILLWAY_GUARDED_BY(mutex_);
  Sequences now_ SPILLWAY_GUARDED_BY(mutex_);
  std::unordered_map<CUdeviceptr, Place> live_ SPILLWAY_GUARDED_BY(mutex_);  // of the running step
  std::unordered_map<CUdeviceptr, Place> left_ SPILLWAY_GUARDED_BY(mutex_);  // of the one before it
};

}  // namespace spillway
