// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/copies.h"

#include "emulator/device/touching.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace spillway::emulator {
namespace {

enum class MemoryKind { kDevice, kPinned, kPageable, kInvalid };

/// One end of a copy: its bytes, and the kind of memory when it was queued.
struct End {
  Rows rows;
  Range range;
  MemoryKind kind;
  bool write;
};

MemoryKind kind_of(const Machine& machine, Range range, bool write) {
  if (machine.allocations.holding(range) != nullptr) return MemoryKind::kDevice;
  if (machine.virtual_memory.device_of(range, write)) return MemoryKind::kDevice;
  if (machine.host.holds(range)) return MemoryKind::kPinned;
  const bool leaves = machine.allocations.overlaps(range) ||
                      machine.virtual_memory.overlaps(range) || machine.host.overlaps(range);
  return leaves || range.begin == 0 ? MemoryKind::kInvalid : MemoryKind::kPageable;
}

std::optional<End> end_of(const Machine& machine, Rows rows, bool write) {
  std::size_t extent = 0;
  if (__builtin_mul_overflow(rows.height - 1, rows.pitch, &extent) ||
      __builtin_add_overflow(extent, rows.width, &extent)) {
    return std::nullopt;
  }
  const auto range = Range::of(rows.at, extent);
  if (!range) return std::nullopt;
  const MemoryKind kind = kind_of(machine, *range, write);
  if (kind == MemoryKind::kInvalid) return std::nullopt;
  return End{rows, *range, kind, write};
}

/// Whether this process may read (or write) every byte, by its list of mappings.
bool is_mapped(Range range, bool write) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             std::fclose);
  if (maps == nullptr) return true;  // assume that it is mapped
  std::array<char, 4096 + 128> line{};
  while (range.begin < range.end && std::fgets(line.data(), line.size(), maps.get()) != nullptr) {
    Range mapped;
    std::array<char, 3> rights{};
    if (std::sscanf(line.data(),
                    "%" SCNxPTR "-%" SCNxPTR " %2c",
                    &mapped.begin,
                    &mapped.end,
                    rights.data()) != 3 ||
        mapped.end <= range.begin) {
      continue;
    }
    if (mapped.begin > range.begin || rights[write ? 1 : 0] == '-') return false;  // in order
    range.begin = mapped.end;
  }
  return range.begin >= range.end;
}

/// When the operation runs, its memory must still exist, as on a GPU. Pageable memory does until
/// the call that waits for the copy returns; but a graph is launched later.
bool still_there(Machine& machine, const End& end, const char* name, bool in_graph) {
  if (end.kind == MemoryKind::kPageable) {
    if (!in_graph || is_mapped(end.range, end.write)) return true;
  } else if (kind_of(machine, end.range, end.write) == end.kind) {
    return true;
  }
  machine.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
  std::fprintf(stderr,
               "spillway-emulator: \"%s\" accessed memory that was unmapped before it ran: %zu "
               "bytes at %p%s\n",
               name,
               end.range.bytes(),
               end.range.at(),
               description_of(end.range.begin));
  return false;
}

const char* copy_name(const End& to, const End& from) {
  const bool to_device = to.kind == MemoryKind::kDevice;
  const bool from_device = from.kind == MemoryKind::kDevice;
  if (from_device) return to_device ? "memcpy device to device" : "memcpy device to host";
  return to_device ? "memcpy host to device" : "memcpy host to host";
}

/// Pageable memory is excluded: the host cannot use it before the call has returned.
void add_accesses(std::vector<Access>& accesses, const End& end, const char* name) {
  if (end.kind == MemoryKind::kPageable) return;
  const Strided::Axis rows{end.rows.height, end.rows.pitch};
  const auto bytes = Strided::of(end.rows.at, end.rows.width, 1, &rows);
  if (bytes) accesses.push_back({*bytes, end.write, name});
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

void fill_rows(const Rows& rows, Pattern pattern) {
  for (std::size_t i = 0; i < rows.height; ++i) {
    auto* bytes = reinterpret_cast<std::byte*>(rows.at + i * rows.pitch);
    if (pattern.unit == 1) {
      std::memset(bytes, static_cast<int>(pattern.value & 0xFFU), rows.width);
      continue;
    }
    for (std::size_t at = 0; at < rows.width; at += pattern.unit)
      std::memcpy(bytes + at, &pattern.value, pattern.unit);
  }
}

/// Both ends of a copy that is permitted.
struct Ends {
  End to;
  End from;
  const char* name;

  /// Whether the host waits for it, even if the call does not block.
  [[nodiscard]] bool always_waits() const {
    const bool pageable = to.kind == MemoryKind::kPageable || from.kind == MemoryKind::kPageable;
    return pageable || (to.kind != MemoryKind::kDevice && from.kind != MemoryKind::kDevice);
  }

  [[nodiscard]] bool on_device() const {
    return to.kind == MemoryKind::kDevice && from.kind == MemoryKind::kDevice;
  }
};

std::optional<Ends> ends_of(const Machine& machine, Rows to, Rows from) {
  const auto target = end_of(machine, to, true);
  const auto source = end_of(machine, from, false);
  if (!target || !source) return std::nullopt;
  return Ends{*target, *source, copy_name(*target, *source)};
}

std::optional<int> device_of(const Machine& machine, Range range) {
  const Allocations::Block* block = machine.allocations.holding(range);
  return block != nullptr ? std::optional<int>(block->device)
                          : machine.virtual_memory.device_of(range, false);
}

std::uint64_t bytes_of(const Ends& ends) {
  return ends.to.rows.width * ends.to.rows.height;
}

/// Shape-only: device memory gets small copies, so that the program reads correct numbers.
bool has_values(const Machine& machine, const Rows& rows) {
  constexpr std::uint64_t kMax = 64U << 10U;
  return !machine.settings.shape_only || rows.width * rows.height <= kMax;
}

bool has_values(const Machine& machine, const Ends& ends) {
  const bool on_host = ends.to.kind != MemoryKind::kDevice && ends.from.kind != MemoryKind::kDevice;
  return on_host || has_values(machine, ends.to.rows);
}

void count_bytes(const Ends& ends) {
  const bool to_device = ends.to.kind == MemoryKind::kDevice;
  if (to_device == (ends.from.kind == MemoryKind::kDevice)) return;
  (to_device ? bytes_to_device() : bytes_to_host()).add(bytes_of(ends));
}

Cost cost_of(const Machine& machine, const Ends& ends) {
  const std::uint64_t bytes = bytes_of(ends);
  if (ends.on_device()) {
    return device_of(machine, ends.to.range) == device_of(machine, ends.from.range)
               ? Cost{Cost::Kind::kMemory, 2 * bytes}  // read and written
               : Cost{Cost::Kind::kBetweenDevices, bytes};
  }
  const bool pageable =
      ends.to.kind == MemoryKind::kPageable || ends.from.kind == MemoryKind::kPageable;
  const double least = pageable ? static_cast<double>(bytes) / machine.clock.rates().pageable : 0;
  if (ends.to.kind == MemoryKind::kDevice) return {Cost::Kind::kHostToDevice, bytes, least};
  if (ends.from.kind == MemoryKind::kDevice) return {Cost::Kind::kDeviceToHost, bytes, least};
  return {Cost::Kind::kOnHost, bytes};
}

Operation copy_operation(Machine& machine, const Ends& ends, bool in_graph) {
  Operation operation;
  if (machine.clock.is_virtual()) operation.cost = cost_of(machine, ends);
  operation.kind = CU_GRAPH_NODE_TYPE_MEMCPY;
  operation.name = ends.name;
  add_accesses(operation.accesses, ends.from, ends.name);
  add_accesses(operation.accesses, ends.to, ends.name);
  operation.work = [&machine, ends, in_graph] {
    if (still_there(machine, ends.from, ends.name, in_graph) &&
        still_there(machine, ends.to, ends.name, in_graph)) {
      if (has_values(machine, ends)) move_rows(ends.to.rows, ends.from.rows);
      count_bytes(ends);
    }
  };
  return operation;
}

}  // namespace

CUresult copy(Machine& machine, Stream& stream, Rows to, Rows from, HostWait wait) {
  if (to.width == 0 || to.height == 0) return CUDA_SUCCESS;
  const auto ends = ends_of(machine, to, from);
  if (!ends) return CUDA_ERROR_INVALID_VALUE;
  machine.streams.submit(stream, copy_operation(machine, *ends, stream.capture != nullptr));
  wait_if_blocking(machine,
                   stream,
                   ends->always_waits() || (wait == HostWait::kAsBlocking && !ends->on_device()));
  return machine.sticky.load();
}

CUresult copy_batch(Machine& machine, Stream& stream, const std::vector<BatchedCopy>& copies) {
  std::vector<Operation> operations;
  bool waits = false;
  for (const BatchedCopy& each : copies) {
    const auto ends = ends_of(machine, row(each.to, each.bytes), row(each.from, each.bytes));
    if (!ends || each.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    waits |= ends->always_waits();
    operations.push_back(copy_operation(machine, *ends, false));
  }
  if (machine.settings.check) {
    GraphNodes nodes;
    for (const Operation& each : operations)
      nodes.push_back(std::make_shared<GraphNode>(GraphNode{nodes.size(), each, {}}));
    check_order_within(nodes, "copy of a batch", machine.checker);
  }
  machine.streams.submit_unordered(stream, std::move(operations));
  wait_if_blocking(machine, stream, waits);
  return machine.sticky.load();
}

CUresult fill(Machine& machine, Stream& stream, Rows rows, Pattern pattern, HostWait wait) {
  if (rows.width == 0 || rows.height == 0) return CUDA_SUCCESS;
  if (rows.at % pattern.unit != 0 || (rows.height > 1 && rows.pitch % pattern.unit != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto target = end_of(machine, rows, true);
  if (!target || target->kind == MemoryKind::kPageable) return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.kind = CU_GRAPH_NODE_TYPE_MEMSET;
  operation.name = "memset";
  operation.cost = {Cost::Kind::kMemory, rows.width * rows.height};
  add_accesses(operation.accesses, *target, operation.name);
  operation.work = [&machine, target = *target, pattern] {
    if (still_there(machine, target, "memset", false) && has_values(machine, target.rows)) {
      fill_rows(target.rows, pattern);
    }
  };
  machine.streams.submit(stream, std::move(operation));
  // A blocking fill of device memory does not wait either (CUDA's rules on synchronous calls).
  wait_if_blocking(
      machine, stream, wait == HostWait::kAsBlocking && target->kind == MemoryKind::kPinned);
  return machine.sticky.load();
}

}  // namespace spillway::emulator
