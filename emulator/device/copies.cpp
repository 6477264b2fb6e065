// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/copies.h"

#include <cstdio>
#include <cstring>
#include <utility>

namespace spillway::emulator {
namespace {

enum class Place { kDevice, kLocked, kPageable, kNowhere };

/// One end of a copy: which bytes, and what kind of memory they lay in when it was queued.
struct End {
  Rows rows;
  Range range;
  Place place;
  bool write;
};

Place place_of(const Machine& machine, Range range, bool write) {
  if (machine.allocations.holding(range) != nullptr) return Place::kDevice;
  if (machine.virtual_memory.device_of(range, write)) return Place::kDevice;
  if (machine.host.holds(range)) return Place::kLocked;
  const bool leaves = machine.allocations.overlaps(range) ||
                      machine.virtual_memory.overlaps(range) || machine.host.overlaps(range);
  return leaves || range.begin == 0 ? Place::kNowhere : Place::kPageable;
}

std::optional<End> end_of(const Machine& machine, Rows rows, bool write) {
  std::size_t extent = 0;
  if (__builtin_mul_overflow(rows.height - 1, rows.pitch, &extent) ||
      __builtin_add_overflow(extent, rows.width, &extent)) {
    return std::nullopt;
  }
  const auto range = Range::of(rows.at, extent);
  if (!range) return std::nullopt;
  const Place place = place_of(machine, *range, write);
  if (place == Place::kNowhere) return std::nullopt;
  return End{rows, *range, place, write};
}

/// When the operation runs, its memory must still be there, as on a GPU.
bool still_there(Machine& machine, const End& end, const char* name) {
  if (end.place == Place::kPageable) return true;  // completed before its call returned
  if (place_of(machine, end.range, end.write) == end.place) return true;
  machine.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
  std::fprintf(
      stderr,
      "spillway-emulator: \"%s\" touched memory that was gone when it ran: %zu bytes at %p\n",
      name,
      end.range.bytes(),
      end.range.at());
  return false;
}

const char* copy_name(const End& to, const End& from) {
  const bool to_device = to.place == Place::kDevice;
  const bool from_device = from.place == Place::kDevice;
  if (from_device) return to_device ? "memcpy device to device" : "memcpy device to host";
  return to_device ? "memcpy host to device" : "memcpy host to host";
}

/// Pageable memory is left out: the host cannot use it before the call has returned.
void add_accesses(std::vector<Access>& accesses, const End& end, const char* name) {
  if (end.place == Place::kPageable) return;
  if (end.rows.pitch == end.rows.width) {
    accesses.push_back({end.range, end.write, name});
    return;
  }
  for (std::size_t i = 0; i < end.rows.height; ++i) {
    const std::uintptr_t at = end.rows.at + i * end.rows.pitch;
    accesses.push_back({{at, at + end.rows.width}, end.write, name});
  }
}

void wait_if_blocking(Machine& machine, Stream& stream, bool blocks) {
  if (!blocks || stream.capture != nullptr) return;
  host_syncs().add();
  machine.streams.synchronize(stream);
}

void move_rows(const Rows& to, const Rows& from) {
  for (std::size_t i = 0; i < to.height; ++i) {
    std::memmove(reinterpret_cast<void*>(to.at + i * to.pitch),
                 reinterpret_cast<const void*>(from.at + i * from.pitch),
                 to.width);
  }
}

void fill_units(std::uintptr_t at, unsigned value, std::size_t unit, std::size_t count) {
  auto* bytes = reinterpret_cast<std::byte*>(at);
  if (unit == 1) {
    std::memset(bytes, static_cast<int>(value & 0xFFU), count);
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(bytes + i * unit, &value, unit);
}

}  // namespace

CUresult copy(Machine& machine, Stream& stream, Rows to, Rows from, HostWait wait) {
  if (to.width == 0 || to.height == 0) return CUDA_SUCCESS;
  const auto target = end_of(machine, to, true);
  const auto source = end_of(machine, from, false);
  if (!target || !source) return CUDA_ERROR_INVALID_VALUE;
  const char* name = copy_name(*target, *source);
  Operation operation;
  operation.kind = CU_GRAPH_NODE_TYPE_MEMCPY;
  operation.name = name;
  add_accesses(operation.accesses, *source, name);
  add_accesses(operation.accesses, *target, name);
  operation.work = [&machine, target = *target, source = *source, name] {
    if (still_there(machine, source, name) && still_there(machine, target, name)) {
      move_rows(target.rows, source.rows);
    }
  };
  machine.streams.submit(stream, std::move(operation));
  const bool pageable = target->place == Place::kPageable || source->place == Place::kPageable;
  const bool on_device = target->place == Place::kDevice && source->place == Place::kDevice;
  wait_if_blocking(machine, stream, pageable || (wait == HostWait::kAsBlocking && !on_device));
  return machine.sticky.load();
}

// NOLINTNEXTLINE(readability-function-size): what CUDA's functions take, together
CUresult fill(Machine& machine,
              Stream& stream,
              std::uintptr_t at,
              unsigned value,
              std::size_t unit,
              std::size_t count,
              HostWait wait) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(unit, count, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) return CUDA_SUCCESS;
  const auto target = end_of(machine, row(at, bytes), true);
  if (!target || target->place == Place::kPageable) return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.kind = CU_GRAPH_NODE_TYPE_MEMSET;
  operation.name = "memset";
  add_accesses(operation.accesses, *target, operation.name);
  operation.work = [&machine, target = *target, value, unit, count] {
    if (still_there(machine, target, "memset")) {
      fill_units(target.range.begin, value, unit, count);
    }
  };
  machine.streams.submit(stream, std::move(operation));
  // A blocking fill of device memory does not wait either (CUDA's rules on synchronous calls).
  wait_if_blocking(
      machine, stream, wait == HostWait::kAsBlocking && target->place == Place::kLocked);
  return machine.sticky.load();
}

}  // namespace spillway::emulator
