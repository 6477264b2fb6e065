// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/trace.h"

#include "allocator/lifetime/wire.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <system_error>

namespace spillway {

TraceEncoder::TraceEncoder(DeviceId device, Bytes granularity) : bytes_(wire::kMagic) {
  number(wire::kVersion);
  number(static_cast<std::uint64_t>(device));
  number(granularity.count());
}

void TraceEncoder::number(std::uint64_t value) {
  for (; value >= 0x80U; value >>= 7U)
    bytes_.push_back(static_cast<char>(value | 0x80U));
  bytes_.push_back(static_cast<char>(value));
}

void TraceEncoder::name(std::string_view tag) {
  number(wire::kName);
  number(tag.size());
  bytes_ += tag;
}

void TraceEncoder::add(const TraceEvent& event) {
  using Kind = TraceEvent::Kind;
  constexpr wire::Kind kKinds[] = {
      wire::kAllocate, wire::kFree, wire::kUse, wire::kRetag, wire::kStep};
  number(kKinds[static_cast<std::size_t>(event.kind)]);
  number(event.time - time_);
  time_ = event.time;
  switch (event.kind) {
    case Kind::kAllocate:
      ++allocations_;
      number(event.bytes.count());
      number(event.tag);
      number(event.stream);
      number(event.pool);
      break;
    case Kind::kRetag:
      number(allocations_ - 1 - event.block);
      number(event.tag);
      break;
    case Kind::kFree:
    case Kind::kUse:
      number(allocations_ - 1 - event.block);
      break;
    case Kind::kStep:
      break;
  }
}

void TraceEncoder::end(std::uint64_t dropped) {
  number(wire::kEnd);
  number(dropped);
}

Result<Trace> load_trace(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  const auto failed = [&] {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          path + ": " + std::generic_category().message(errno));
  };
  if (!file) return failed();
  std::string bytes;
  char piece[65536];
  while (const std::size_t got = std::fread(piece, 1, sizeof(piece), file.get()))
    bytes.append(piece, got);
  if (std::ferror(file.get()) != 0) return failed();
  Result<Trace> trace = read_trace(bytes);
  if (trace.ok()) return trace;
  return SPILLWAY_ERROR(trace.status().code(), path + ": " + trace.status().detail());
}

}  // namespace spillway
