// SPDX-License-Identifier: Apache-2.0
// Device memory: blocks from Spillway's heap beside the driver's own pool, and what giving memory
// to addresses costs, and taking it away. Times of the host.
#include "allocator/heap/heap.h"
#include "bench/micro/device_range.h"
#include "bench/micro/micro.h"

namespace spillway::micro {
namespace {

using namespace literals;

/// Allocates and frees a block of a size that is cached.
void hit(benchmark::State& state, Bytes size) {
  const auto heap = Heap::create(probe().device(), HeapOptions{});
  const auto stream = OwnedStream::make(probe());
  if (failed(state, heap.status()) || failed(state, stream.status())) return;
  const driver::Stream on(stream.value().handle());
  if (const auto first = heap.value()->allocate(size, on, TagId::kUntagged);
      !failed(state, first.status())) {
    heap.value()->free(first.value());
  }
  const auto before = driver::counters().allocations;
  for (auto _ : state) {
    const auto block = heap.value()->allocate(size, on, TagId::kUntagged);
    if (failed(state, block.status())) break;
    heap.value()->free(block.value());
  }
  state.counters["driver_allocations"] =
      static_cast<double>(driver::counters().allocations - before);
  state.SetLabel("host's time");
}

/// The same from the driver's stream-ordered pool, as a scale.
void hit_driver(benchmark::State& state, Bytes size) {
  const auto stream = OwnedStream::make(probe());
  if (failed(state, stream.status())) return;
  CUstream on = stream.value().handle();
  for (auto _ : state) {
    CUdeviceptr block = 0;
    if (failed(state, SPILLWAY_CALL_EXTRA(probe(), MemAllocAsync, &block, size.count(), on))) break;
    if (failed(state, SPILLWAY_CALL_EXTRA(probe(), MemFreeAsync, block, on))) break;
  }
  static_cast<void>(probe().finish_sync(on));
  state.SetLabel("host's time");
}

/// Gives memory to a range of addresses in chunks, and takes it away again: one range of
/// `count` chunks, access set for all of it by one call. The time is of all of that, for all
/// chunks.
void remap(benchmark::State& state, Bytes chunk, std::size_t count) {
  DeviceRange::Cost cost;
  Seconds unmap{};
  Seconds release{};
  for (auto _ : state) {
    auto range = DeviceRange::make(probe(), chunk, count);
    if (failed(state, range.status())) return;
    const DeviceRange::Cost& each = range.value().cost();
    const Seconds unmapped = range.value().unmap();
    const Seconds released = range.value().release();
    const Seconds all = each.create + each.map + each.access + unmapped + released;
    state.SetIterationTime(all.count());
    cost.reserve += each.reserve;
    cost.create += each.create;
    cost.map += each.map;
    cost.access += each.access;
    unmap += unmapped;
    release += released;
  }
  const auto rounds = static_cast<double>(state.iterations());
  const auto report = [&](const char* name, Seconds all) {
    state.counters[name] = all.count() * 1e6 / rounds;
  };
  report("reserve_us", cost.reserve);
  report("create_us", cost.create);
  report("map_us", cost.map);
  report("access_us", cost.access);
  report("unmap_us", unmap);
  report("release_us", release);
  state.SetLabel("host's time");
}

}  // namespace

void register_benchmarks() {
  for (const Bytes size : {4_KiB, 4_MiB}) {
    add_repeated("BM_Block/heap/" + size_name(size),
                 [=](benchmark::State& state) { hit(state, size); });
    add_repeated("BM_Block/driver_pool/" + size_name(size),
                 [=](benchmark::State& state) { hit_driver(state, size); });
  }
  const Bytes largest = driver::emulated() ? 64_MiB : Bytes{1ULL << 30U};
  for (Bytes size = 2_MiB; size <= largest; size = Bytes{size.count() * 2}) {
    add_measured("BM_Remap/one_chunk/" + size_name(size),
                 [=](benchmark::State& state) { remap(state, size, 1); });
  }
  for (const Bytes chunk : {2_MiB, 16_MiB, 64_MiB, 256_MiB}) {
    if (chunk >= largest) break;
    add_measured(
        "BM_Remap/chunks_of_" + size_name(chunk) + '/' + size_name(largest),
        [=](benchmark::State& state) { remap(state, chunk, largest.count() / chunk.count()); });
  }
}

}  // namespace spillway::micro
