// SPDX-License-Identifier: Apache-2.0
// Copies beside kernels: how much of the shorter one disappears, and what the kernel pays for it.
#include "bench/micro/kernels.h"
#include "bench/micro/link.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace spillway::micro {
namespace {

using namespace literals;

constexpr Kernel kKernels[] = {Kernel::kFma, Kernel::kTriad, Kernel::kGemm, Kernel::kAttention};

struct Beside {
  const char* name;
  std::vector<Way> ways;
};

const std::array<Beside, 3> kBeside = {
    {{"to_host", {Way::kOut}}, {"to_device", {Way::kIn}}, {"both", {Way::kIn, Way::kOut}}}};

/// One kernel and its copies: alone, and beside each other.
class Overlap {
 public:
  /// `kept` must outlive it.
  static Result<std::unique_ptr<Overlap>> make(Kernel kernel,
                                               const Beside& beside,
                                               KeptLink& kept) {
    std::unique_ptr<Overlap> made(new Overlap);
    SPILLWAY_ASSIGN_OR_RETURN(made->kernels_, Kernels::make(probe()));
    SPILLWAY_ASSIGN_OR_RETURN(made->link_, kept.of(HostKind::kArena));
    SPILLWAY_RETURN_IF_ERROR(made->choose_lengths(kernel, beside));
    return made;
  }

  struct Times {
    Seconds kernel;  // of all launches, alone
    Seconds copies;  // of all copies, alone
    Seconds both;
    Seconds kernel_beside;  // of the launches, beside the copies

    /// 1 where all of the shorter one disappears behind the longer one, 0 where they take turns.
    [[nodiscard]] double overlap() const {
      return (kernel + copies - both) / std::min(kernel, copies);
    }
  };

  Result<Times> measure_sync() {
    DeviceTime& time = link_->time();
    std::vector<Lane> lanes = copies_;
    SPILLWAY_ASSIGN_OR_RETURN(const auto copies, time.measure_sync(lanes, Kernels::hold()));
    lanes.push_back(kernel_);
    SPILLWAY_ASSIGN_OR_RETURN(const auto both, time.measure_sync(lanes, Kernels::hold()));
    SPILLWAY_ASSIGN_OR_RETURN(const Seconds kernel, length_of(kernel_));
    return Times{kernel, together(copies), together(both), both.back().length()};
  }

  [[nodiscard]] std::uint64_t launches() const { return launches_; }

 private:
  Overlap() = default;

  /// As many launches as take some milliseconds, and copies that last somewhat longer, so that the
  /// kernel is never without them.
  Status choose_lengths(Kernel kernel, const Beside& beside) {
    const Seconds wanted(driver::emulated() ? 2e-3 : 20e-3);
    constexpr double kLonger = 1.25;
    const Bytes piece = std::min(32_MiB, Link::largest());
    SPILLWAY_RETURN_IF_ERROR(length_of(kernels_->lane(kernel, 1)).status());  // warm-up
    SPILLWAY_ASSIGN_OR_RETURN(const Seconds launch, length_of(kernels_->lane(kernel, 1)));
    launches_ = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(wanted / launch));
    kernel_ = kernels_->lane(kernel, launches_);
    SPILLWAY_ASSIGN_OR_RETURN(const Seconds alone, length_of(kernel_));
    for (const Way way : beside.ways) {
      SPILLWAY_ASSIGN_OR_RETURN(const Seconds four, length_of(link_->lane({way, piece, 4})));
      const double count = std::ceil(kLonger * 4 * (alone / four));
      copies_.push_back(link_->lane({way, piece, static_cast<std::uint64_t>(count)}));
    }
    return {};
  }

  Result<Seconds> length_of(const Lane& lane) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto spans,
                              link_->time().measure_sync({&lane, 1}, Kernels::hold()));
    return spans[0].length();
  }

  std::unique_ptr<Kernels> kernels_;
  Link* link_ = nullptr;
  std::uint64_t launches_ = 0;
  Lane kernel_{};
  std::vector<Lane> copies_;
};

void overlap(benchmark::State& state, Kernel kernel, const Beside& beside, KeptLink& kept) {
  const auto made = Overlap::make(kernel, beside, kept);
  if (failed(state, made.status())) return;
  Overlap& measured = *made.value();
  if (failed(state, measured.measure_sync().status())) return;
  std::vector<Overlap::Times> all;
  for (auto _ : state) {
    const auto times = measured.measure_sync();
    if (failed(state, times.status())) return;
    state.SetIterationTime(times.value().both.count());
    all.push_back(times.value());
  }
  const auto mean = [&](auto&& of) {
    double sum = 0;
    for (const Overlap::Times& each : all)
      sum += of(each);
    return sum / static_cast<double>(all.size());
  };
  using Times = Overlap::Times;
  state.counters["overlap"] = mean([](const Times& each) { return each.overlap(); });
  state.counters["slow_down"] = mean([](const Times& t) { return t.kernel_beside / t.kernel; });
  state.counters["kernel_us"] = mean([](const Times& each) { return each.kernel.count() * 1e6; });
  state.counters["copies_us"] = mean([](const Times& each) { return each.copies.count() * 1e6; });
  state.counters["launches"] = static_cast<double>(measured.launches());
  state.counters["flops"] = work_of(kernel).flops;
  state.counters["bytes"] = static_cast<double>(work_of(kernel).bytes);
}

}  // namespace

void register_benchmarks() {
  const auto kept = std::make_shared<KeptLink>();
  for (const Kernel kernel : kKernels) {
    for (const Beside& beside : kBeside) {
      const std::string name = std::string("BM_Overlap/") + kernel_name(kernel) + '/' + beside.name;
      add_measured(name, [=](benchmark::State& state) { overlap(state, kernel, beside, *kept); });
    }
  }
}

}  // namespace spillway::micro
