// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// One thing that happened to a block, or the end of a step. `block` counts allocations from zero.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    kAllocate,  // block `block` of `bytes`, for work on `stream`, from `pool`, under `tag`
    kFree,      // block `block`
    kUse,       // block `block` was saved for, or used by, a backward pass
    kRetag,     // block `block` is for `tag` from now on
    kStep,      // a training step ended
  };

  Kind kind = Kind::kStep;
  std::uint64_t time = 0;  // nanoseconds since the trace began, never less than the event's before
  std::uint64_t block = 0;
  Bytes bytes;
  std::uint32_t tag = 0;     // a place in Trace::tags
  std::uint32_t stream = 0;  // streams are numbered as they appear
  std::uint32_t pool = 0;    // pools too

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

/// The allocations of one device, in the order in which they happened: what docs/trace_format.md
/// describes. Every event about a block comes after its allocation, and none after its free.
struct Trace {
  DeviceId device{};
  Bytes granularity;                     // of the device's physical memory
  std::vector<std::string> tags = {""};  // names by number
  std::vector<TraceEvent> events;
  bool complete = false;      // false: the program ended, or a disk was full, before the trace did
  std::uint64_t dropped = 0;  // events that could not be written before it ended
};

/// Makes a trace's bytes, event by event. Threads: confined.
class TraceEncoder {
 public:
  TraceEncoder(DeviceId device, Bytes granularity);

  /// Requires: what Trace says of its events; event.tag counts the names given to `name` from one.
  void add(const TraceEvent& event);
  /// The next tag's name.
  void name(std::string_view tag);
  void end(std::uint64_t dropped);

  /// The bytes made and not taken yet; the caller may take them offloaded at any time.
  std::string& bytes() { return bytes_; }

 private:
  void number(std::uint64_t value);

  std::string bytes_;
  std::uint64_t time_ = 0;
  std::uint64_t allocations_ = 0;
};

/// Reads a trace. One that ends early is read as far as it goes.
/// Errors: kInvalidArgument with the place for bytes that are no trace, another version, or a
/// content that contradicts itself.
Result<Trace> read_trace(std::string_view bytes);

/// As read_trace, from a file. Errors: also kInvalidArgument where it cannot be read.
Result<Trace> load_trace(const std::string& path);

}  // namespace spillway
