// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/values.h"

#include <utility>

namespace spillway::emulator {
namespace {

constexpr unsigned kMaskOfConditions = 3;

bool in_place(const Machine& machine, Range range) {
  return machine.allocations.holding(range) != nullptr ||
         machine.virtual_memory.device_of(range, true) || machine.host.holds(range);
}

/// Other host threads may write the value: read in one piece.
template <typename Word>
bool holds(const ValueOperation& wait) {
  const Word now = __atomic_load_n(reinterpret_cast<const Word*>(wait.at), __ATOMIC_ACQUIRE);
  const auto value = static_cast<Word>(wait.value);
  switch (wait.flags & kMaskOfConditions) {
    case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic
      return static_cast<std::make_signed_t<Word>>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:
      return static_cast<Word>(~(now | value)) != 0;
  }
}

void write(const ValueOperation& operation) {
  if (operation.bytes == 4) {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(operation.at),
                     static_cast<std::uint32_t>(operation.value),
                     __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(
        reinterpret_cast<std::uint64_t*>(operation.at), operation.value, __ATOMIC_RELEASE);
  }
}

}  // namespace

CUresult check_value(const Machine& machine, const ValueOperation& operation) {
  unsigned allowed = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  if (operation.waits) {
    if ((operation.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) {
      return refuse("CU_STREAM_WAIT_VALUE_FLUSH");
    }
    allowed = kMaskOfConditions;
  }
  const auto range = Range::of(operation.at, operation.bytes);
  if ((operation.flags & ~allowed) != 0 || operation.at % operation.bytes != 0 || !range ||
      !in_place(machine, *range)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

void submit_value(Machine& machine, Stream& stream, const ValueOperation& operation) {
  Operation queued;
  queued.kind = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  queued.name = operation.waits ? "wait for a value" : "write of a value";
  if (operation.waits) {
    const auto written = machine.values.find(operation.at);
    if (written != machine.values.end()) {
      machine.ordering.order_after(stream.actor, written->second);
    }
    queued.ready = [operation] {
      return operation.bytes == 4 ? holds<std::uint32_t>(operation)
                                  : holds<std::uint64_t>(operation);
    };
  } else {
    machine.streams.begin(stream);
    if (machine.settings.check) {
      machine.values[operation.at].join(machine.ordering.point(stream.actor));
    }
    queued.work = [operation] {
      write(operation);
    };
  }
  machine.streams.submit(stream, std::move(queued));
}

}  // namespace spillway::emulator
