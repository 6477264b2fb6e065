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

/// An event of a block, or the end of a step. `block` is the number of earlier allocations.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    kAllocate,  // block `block` of `bytes`, for work on `stream`, from `pool`, under `tag`
    kFree,      // block `block`
    kUse,       // a backward pass saved or used block `block`
    kRetag,     // the tag of block `block` is `tag` from now on
    kStep,      // a training step ended
  };

  Kind kind = Kind::kStep;
  std::uint64_t time = 0;  // nanoseconds since the trace began; never decreases
  std::uint64_t block = 0;
  Bytes bytes;
  std::uint32_t tag = 0;     // index in Trace::tags
  std::uint32_t stream = 0;  // streams are numbered in order of appearance
  std::uint32_t pool = 0;    // pools likewise

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

/// The allocations of one device, in order: the contents of docs/trace_format.md. Every event of a
/// block is after its allocation and not after its free.
struct Trace {
  DeviceId device{};
  Bytes granularity;                     // of the device's physical memory
  std::vector<std::string> tags = {""};  // names by number
  std::vector<TraceEvent> events;
  // false: the trace is truncated, because the program ended or a disk was full
  bool complete = false;
  std::uint64_t dropped = 0;  // events that could not be written before the end
};

/// Encodes a trace event by event. Threads: confined.
class TraceEncoder {
 public:
  TraceEncoder(DeviceId device, Bytes granularity);

  /// Requires: the events satisfy Trace's rules; event.tag counts the names passed to `name` from
  /// one.
  void add(const TraceEvent& event);
  /// Adds the next tag's name.
  void name(std::string_view tag);
  void end(std::uint64_t dropped);

  /// The encoded bytes; the caller may remove them at any time.
  std::string& bytes() { return bytes_; }

 private:
  void number(std::uint64_t value);

  std::string bytes_;
  std::uint64_t time_ = 0;
  std::uint64_t allocations_ = 0;
};

/// Decodes a trace. A truncated trace is decoded as far as possible.
/// Errors: kInvalidArgument if the bytes are not a trace, have another format, or are damaged. The
/// text has no subject: the caller puts the file's name before it.
Result<Trace> read_trace(std::string_view bytes);

/// As read_trace, from a file. Errors: also kInvalidArgument if it cannot be read.
Result<Trace> load_trace(const std::string& path);

}  // namespace spillway
