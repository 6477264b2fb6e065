// SPDX-License-Identifier: Apache-2.0
// Copies between host and device: by direction, size and kind of host memory; both directions at
// once; one large copy in pieces.
#include "bench/micro/link.h"

namespace spillway::micro {
namespace {

using namespace literals;

constexpr HostKind kPinnedKinds[] = {
    HostKind::kPinned, HostKind::kSmallPages, HostKind::kHugePages, HostKind::kArena};
constexpr Way kWays[] = {Way::kIn, Way::kOut};

/// What came of one measurement: seconds of its device time, and bytes that went over the link.
struct Sample {
  double seconds;
  double bytes;
};

/// Runs `measure` once unmeasured and then for every iteration. The time is that of one of `count`.
void run(benchmark::State& state,
         std::uint64_t count,
         const std::function<Result<Sample>()>& measure) {
  double seconds = 0;
  double bytes = 0;
  if (failed(state, measure().status())) return;
  for (auto _ : state) {
    const Result<Sample> sample = measure();
    if (failed(state, sample.status())) break;
    state.SetIterationTime(sample.value().seconds / static_cast<double>(count));
    seconds += sample.value().seconds;
    bytes += sample.value().bytes;
  }
  if (seconds > 0) state.counters["GB_per_s"] = bytes / 1e9 / seconds;
}

void copy(benchmark::State& state, KeptLink& kept, HostKind kind, const Copies& copies) {
  const auto link = kept.of(kind);
  if (failed(state, link.status())) return;
  state.counters["bytes"] = static_cast<double>(copies.size.count());
  run(state, copies.count, [&]() -> Result<Sample> {
    const Lane lanes[] = {link.value()->lane(copies)};
    SPILLWAY_ASSIGN_OR_RETURN(const auto spans,
                              link.value()->time().measure_sync(lanes, link.value()->hold()));
    return Sample{spans[0].length().count(), copies.bytes()};
  });
}

/// One direction while the other has work for longer.
void duplex(benchmark::State& state, KeptLink& kept, HostKind kind, Way way) {
  const auto link = kept.of(kind);
  if (failed(state, link.status())) return;
  const Bytes size = std::min(64_MiB, Link::largest());
  const Copies measured{way, size, 8};
  // A link may be several times as fast in one direction as in the other.
  const Copies beside{way == Way::kIn ? Way::kOut : Way::kIn, size, 24};
  state.counters["bytes"] = static_cast<double>(size.count());
  double covered = 1;
  run(state, measured.count, [&]() -> Result<Sample> {
    const Lane lanes[] = {link.value()->lane(measured), link.value()->lane(beside)};
    SPILLWAY_ASSIGN_OR_RETURN(const auto spans, link.value()->time().measure_sync(lanes));
    covered = std::min(covered, spans[0].share_inside(spans[1]));
    return Sample{spans[0].length().count(), measured.bytes()};
  });
  state.counters["covered"] = covered;  // of the time, how much the other direction was busy
}

/// Both directions, with as many bytes each.
void both_ways(benchmark::State& state, KeptLink& kept, HostKind kind) {
  constexpr std::uint64_t kCount = 8;
  const auto link = kept.of(kind);
  if (failed(state, link.status())) return;
  const Bytes size = std::min(512_MiB, Link::largest());
  state.counters["bytes"] = static_cast<double>(size.count());
  run(state, kCount, [&]() -> Result<Sample> {
    const auto lanes = link.value()->both_ways(size, kCount);
    SPILLWAY_ASSIGN_OR_RETURN(const auto spans, link.value()->time().measure_sync(lanes));
    return Sample{together(spans).count(), 2.0 * kCount * static_cast<double>(size.count())};
  });
}

/// The same bytes in pieces of one size: what a smaller piece costs the link.
void pieces(benchmark::State& state, KeptLink& kept, Way way, Bytes piece) {
  const auto link = kept.of(HostKind::kArena);
  if (failed(state, link.status())) return;
  const Copies copies{way, piece, Link::largest().count() / piece.count()};
  state.counters["bytes"] = static_cast<double>(piece.count());
  run(state, 1, [&]() -> Result<Sample> {
    const Lane lanes[] = {link.value()->lane(copies)};
    SPILLWAY_ASSIGN_OR_RETURN(const auto spans, link.value()->time().measure_sync(lanes));
    return Sample{spans[0].length().count(), copies.bytes()};
  });
}

}  // namespace

void register_benchmarks() {
  const auto kept = std::make_shared<KeptLink>();
  for (const HostKind kind : kPinnedKinds) {
    add_measured(std::string("BM_BothWays/") + kind_name(kind),
                 [=](benchmark::State& state) { both_ways(state, *kept, kind); });
  }
  for (const Way way : kWays) {
    const std::string direction = way_name(way);
    const auto add_copies = [&](HostKind kind) {
      for (Bytes size = 64_KiB; size <= Link::largest(); size = Bytes{size.count() * 4}) {
        const std::string name = "BM_Copy/" + direction + '/' + kind_name(kind) + '/';
        const Copies copies{way, size, copies_of(size)};
        add_measured(name + size_name(size),
                     [=](benchmark::State& state) { copy(state, *kept, kind, copies); });
      }
    };
    add_copies(HostKind::kPageable);
    for (const HostKind kind : kPinnedKinds) {
      add_copies(kind);
      add_measured("BM_Duplex/" + direction + '/' + kind_name(kind),
                   [=](benchmark::State& state) { duplex(state, *kept, kind, way); });
    }
    for (Bytes piece = 1_MiB; piece <= Link::largest(); piece = Bytes{piece.count() * 2}) {
      add_measured("BM_Pieces/" + direction + '/' + size_name(piece),
                   [=](benchmark::State& state) { pieces(state, *kept, way, piece); });
    }
  }
}

}  // namespace spillway::micro
