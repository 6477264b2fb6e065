// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace spillway {

/// The life of one storage. Places are those of events in one sequence, times nanoseconds since the
/// recording began.
struct LifetimeRecord {
  struct Moment {
    std::uint64_t place = 0;
    std::uint64_t time = 0;
    std::uint64_t step = 0;  // steps that had ended by then
  };

  std::uint64_t block = 0;  // counts allocations from zero
  Bytes bytes;
  TagId tag = TagId::kUntagged;
  std::uint64_t stream = 0;  // handles, as the allocator got them
  std::uint64_t pool = 0;
  Moment birth;
  Moment last_use;  // of what autograd saved and unpacked; the birth where nothing was seen
  Moment death;     // of a live storage: its place is zero
};

struct LifetimeCounts {
  std::uint64_t births = 0;
  std::uint64_t deaths = 0;
  std::uint64_t uses = 0;
  std::uint64_t steps = 0;
  std::uint64_t live = 0;       // born while recording, and alive
  std::uint64_t dropped = 0;    // records that made room for newer ones
  std::uint64_t unwritten = 0;  // events that are not in the file, because it could not be written
};

struct RecordingOptions {
  DeviceId device{};
  Bytes granularity;                 // for the file's header
  std::string path;                  // of a trace file; empty for none
  std::size_t most = 65536;          // finished records that are kept
  std::uint64_t (*now)() = nullptr;  // nanoseconds; null for the machine's steady clock
};

/// Watches the storages of one device while a recording is on. Off, it costs one relaxed load.
/// Storages that were born before the recording are not seen.
///
/// Threads: safe. One for the process; never destroyed.
class LifetimeRecorder {
 public:
  LifetimeRecorder(const LifetimeRecorder&) = delete;
  LifetimeRecorder& operator=(const LifetimeRecorder&) = delete;

  static LifetimeRecorder& instance();

  [[nodiscard]] static bool on() { return on_.load(std::memory_order_relaxed); }

  /// Begins a recording; what an earlier one has left is forgotten.
  /// Errors: kNotReady where one is on; kInvalidArgument where the file cannot be made.
  Status start(const RecordingOptions& options);

  /// Ends it; its records stay until the next one. Errors: kNotReady where none is on;
  /// kInvalidArgument where the file could not be written to its end (the recording has ended
  /// anyway
  /// ).
  Status stop();

  /// What happened. Call them where on(); what concerns other devices, or blocks that were born
  /// before, is ignored. `died` comes before the memory can be handed out again.
  void born(DeviceId device,
            std::uint64_t address,
            Bytes bytes,
            TagId tag,
            std::uint64_t stream,
            std::uint64_t pool);
  void died(DeviceId device, std::uint64_t address);
  void used(DeviceId device, std::uint64_t address);
  void retagged(DeviceId device, std::uint64_t address, TagId tag);
  void step_ended();

  /// Finished records, oldest first, then those of live storages in the order of their births.
  [[nodiscard]] std::vector<LifetimeRecord> records() const;
  [[nodiscard]] LifetimeCounts counts() const;

 private:
  struct Recording;

  LifetimeRecorder();
  ~LifetimeRecorder();

  static std::atomic<bool> on_;  // not inline: one for all of Spillway's libraries
  mutable Mutex mutex_;
  std::unique_ptr<Recording> recording_ SPILLWAY_GUARDED_BY(mutex_);  // the last one
};

}  // namespace spillway
