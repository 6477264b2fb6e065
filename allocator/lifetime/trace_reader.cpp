// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/utf8.h"
#include "allocator/lifetime/trace.h"
#include "allocator/lifetime/wire.h"

#include <limits>
#include <optional>

namespace spillway {
namespace {

constexpr std::uint64_t kMaxNumbers = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kLongestName = 65536;

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  Result<Trace> read() {
    SPILLWAY_RETURN_IF_ERROR(header());
    while (!trace_.complete) {
      begin_ = at_;
      bool whole = true;
      SPILLWAY_RETURN_IF_ERROR(record(whole));
      if (!whole) break;  // an incomplete record
    }
    if (trace_.complete && at_ != bytes_.size()) return wrong("data after the end of the trace");
    return std::move(trace_);
  }

 private:
  [[nodiscard]] Status wrong(const std::string& what) const {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "is damaged at byte " + std::to_string(begin_) + " (" + what + "). Record the run again.");
  }

  static Status refused(const std::string& why) {
    return SPILLWAY_ERROR(Code::kInvalidArgument, why);
  }

  Status header() {
    if (bytes_.substr(0, wire::kMagic.size()) != wire::kMagic) {
      return refused(
          "is not a trace of Spillway. Write one with spillway.memory.record_trace(PATH).");
    }
    at_ = wire::kMagic.size();
    bool whole = true;
    std::uint64_t version = 0;
    SPILLWAY_RETURN_IF_ERROR(number(version, whole));
    if (whole && version != wire::kVersion) {
      return refused("has format " + std::to_string(version) + ", but this Spillway reads format " +
                     std::to_string(wire::kVersion) +
                     ". Use the version of Spillway that wrote it.");
    }
    std::uint64_t device = 0;
    std::uint64_t granularity = 0;
    SPILLWAY_RETURN_IF_ERROR(number(device, whole));
    SPILLWAY_RETURN_IF_ERROR(number(granularity, whole));
    if (!whole) return refused("is truncated within its header. Record the run again.");
    if (device > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
      return wrong("device " + std::to_string(device));
    }
    trace_.device = static_cast<DeviceId>(static_cast<std::int32_t>(device));
    trace_.granularity = Bytes{granularity};
    return {};
  }

  /// `whole` becomes false if the bytes end early.
  Status number(std::uint64_t& value, bool& whole) {
    value = 0;
    for (unsigned shift = 0;; shift += 7) {
      if (at_ == bytes_.size()) {
        whole = false;
        return {};
      }
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      if (shift == 63 && byte > 1) return wrong("a number of more than 64 bits");
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80U) == 0) return {};
    }
  }

  Status record(bool& whole) {
    if (at_ == bytes_.size()) {
      whole = false;
      return {};
    }
    std::uint64_t kind = 0;
    SPILLWAY_RETURN_IF_ERROR(number(kind, whole));
    if (!whole) return {};
    switch (kind) {
      case wire::kName:
        return name(whole);
      case wire::kEnd:
        SPILLWAY_RETURN_IF_ERROR(number(trace_.dropped, whole));
        trace_.complete = whole;
        return {};
      case wire::kAllocate:
        return event(TraceEvent::Kind::kAllocate, whole);
      case wire::kFree:
        return event(TraceEvent::Kind::kFree, whole);
      case wire::kUse:
        return event(TraceEvent::Kind::kUse, whole);
      case wire::kRetag:
        return event(TraceEvent::Kind::kRetag, whole);
      case wire::kStep:
        return event(TraceEvent::Kind::kStep, whole);
      default:
        return wrong("unknown record " + std::to_string(kind));
    }
  }

  Status name(bool& whole) {
    std::uint64_t length = 0;
    SPILLWAY_RETURN_IF_ERROR(number(length, whole));
    if (!whole) return {};
    if (length > kLongestName) return wrong("a name of " + std::to_string(length) + " bytes");
    if (length > bytes_.size() - at_) {
      whole = false;
      return {};
    }
    trace_.tags.push_back(valid_utf8(bytes_.substr(at_, length)));
    at_ += length;
    return {};
  }

  Status event(TraceEvent::Kind kind, bool& whole) {
    TraceEvent event;
    event.kind = kind;
    std::uint64_t later = 0;
    SPILLWAY_RETURN_IF_ERROR(number(later, whole));
    if (later > std::numeric_limits<std::uint64_t>::max() - time_) {
      return wrong("a time past 2^64 nanoseconds");
    }
    event.time = time_ + later;
    if (kind == TraceEvent::Kind::kAllocate) {
      SPILLWAY_RETURN_IF_ERROR(allocation(event, whole));
    } else if (kind != TraceEvent::Kind::kStep) {
      SPILLWAY_RETURN_IF_ERROR(of_block(event, whole));
    }
    if (!whole) return {};
    time_ = event.time;
    trace_.events.push_back(event);
    return {};
  }

  Status allocation(TraceEvent& event, bool& whole) {
    std::uint64_t size = 0;
    SPILLWAY_RETURN_IF_ERROR(number(size, whole));
    SPILLWAY_RETURN_IF_ERROR(small(event.tag, trace_.tags.size() - 1, "tag", whole));
    SPILLWAY_RETURN_IF_ERROR(small(event.stream, streams_, "stream", whole));
    SPILLWAY_RETURN_IF_ERROR(small(event.pool, pools_, "pool", whole));
    if (!whole) return {};
    if (size > std::numeric_limits<std::uint64_t>::max() - live_) {
      return wrong("more than 2^64 allocated bytes");
    }
    if (event.stream == streams_) ++streams_;
    if (event.pool == pools_) ++pools_;
    live_ += size;
    event.bytes = Bytes{size};
    event.block = sizes_.size();
    sizes_.emplace_back(size);
    return {};
  }

  Status of_block(TraceEvent& event, bool& whole) {
    std::uint64_t back = 0;
    SPILLWAY_RETURN_IF_ERROR(number(back, whole));
    if (!whole) return {};
    if (back >= sizes_.size() || !sizes_[sizes_.size() - 1 - back]) {
      return wrong("event of a block that is not allocated");
    }
    event.block = sizes_.size() - 1 - back;
    if (event.kind == TraceEvent::Kind::kRetag) {
      return small(event.tag, trace_.tags.size() - 1, "tag", whole);
    }
    if (event.kind == TraceEvent::Kind::kFree) {
      live_ -= *sizes_[event.block];
      sizes_[event.block].reset();
    }
    return {};
  }

  /// A number that is at most `most`, the count so far.
  Status small(std::uint32_t& value, std::uint64_t most, const char* what, bool& whole) {
    std::uint64_t read = 0;
    SPILLWAY_RETURN_IF_ERROR(number(read, whole));
    if (whole && (read > most || read > kMaxNumbers)) {
      return wrong(std::string(what) + " " + std::to_string(read) + " was not introduced");
    }
    value = static_cast<std::uint32_t>(read);
    return {};
  }

  const std::string_view bytes_;
  std::size_t at_ = 0;
  std::size_t begin_ = 0;  // of the record being read
  Trace trace_;
  std::uint64_t time_ = 0;
  std::uint64_t live_ = 0;
  std::uint32_t streams_ = 0;
  std::uint32_t pools_ = 0;
  std::vector<std::optional<std::uint64_t>> sizes_;  // by block; none: it was freed
};

}  // namespace

Result<Trace> read_trace(std::string_view bytes) {
  return Reader(bytes).read();
}

}  // namespace spillway
