// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/lifetime/memory_events.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace spillway {

/// The lifetime of one storage. Event indices refer to one sequence; times are nanoseconds since
/// the recording began.
struct LifetimeRecord {
  struct Moment {
    std::uint64_t event = 0;
    std::uint64_t time = 0;
    std::uint64_t step = 0;  // number of steps ended before
  };

  std::uint64_t block = 0;  // number of earlier allocations
  Bytes bytes;
  TagId tag = TagId::kUntagged;
  std::uint64_t stream = 0;  // handles, as passed to the allocator
  std::uint64_t pool = 0;
  Moment birth;
  Moment last_use;  // last save or unpack by autograd; the allocation if there was none
  Moment death;     // its event index is zero while the storage is allocated
};

struct LifetimeCounts {
  std::uint64_t births = 0;
  std::uint64_t deaths = 0;
  std::uint64_t uses = 0;
  std::uint64_t steps = 0;
  std::uint64_t live = 0;       // allocated during the recording and not freed
  std::uint64_t dropped = 0;    // records replaced by newer ones
  std::uint64_t unwritten = 0;  // events missing in the file because of a write failure
};

struct RecordingOptions {
  DeviceId device{};
  Bytes granularity;                 // for the file's header
  std::string path;                  // of a trace file; empty for none
  std::size_t most = 65536;          // maximum number of finished records
  std::uint64_t (*now)() = nullptr;  // nanoseconds; null for the machine's steady clock
};

/// Records the storages of one device while a recording is on (MemoryEvents). Storages allocated
/// before the recording are not included.
///
/// Threads: safe. One per process; never destroyed.
class LifetimeRecorder final : private MemoryObserver {
 public:
  LifetimeRecorder(const LifetimeRecorder&) = delete;
  LifetimeRecorder& operator=(const LifetimeRecorder&) = delete;

  static LifetimeRecorder& instance();

  [[nodiscard]] static bool on() { return on_.load(std::memory_order_relaxed); }

  /// Begins a recording and drops the previous one.
  /// Errors: kNotReady if one is on; kInvalidArgument if the file cannot be created.
  Status start(const RecordingOptions& options);

  /// Ends the recording; its records stay until the next one.
  /// Errors: kNotReady if none is on; kInvalidArgument if the file could not be completed. The
  /// recording has ended in that case too.
  Status stop();

  /// Finished records, oldest first, then those of allocated storages in allocation order.
  [[nodiscard]] std::vector<LifetimeRecord> records() const;
  [[nodiscard]] LifetimeCounts counts() const;

 protected:
  ~LifetimeRecorder();  // never destroyed

 private:
  struct Recording;

  // Events of other devices, and of blocks allocated before the recording, are ignored.
  void born(const BornBlock& block) override;
  void died(DeviceId device, std::uint64_t address) override;
  void used(DeviceId device, std::uint64_t address) override;
  void retagged(DeviceId device, std::uint64_t address, TagId tag) override;
  void step_ended() override;

  LifetimeRecorder();

  static std::atomic<bool> on_;  // not inline: one instance for all of Spillway's libraries
  mutable Mutex mutex_;
  std::unique_ptr<Recording> recording_ SPILLWAY_GUARDED_BY(mutex_);  // the latest one
};

}  // namespace spillway
