// SPDX-License-Identifier: Apache-2.0
// What driver calls cost the host, and the device's time from a kernel on one stream to a kernel on
// another that waits for it.
#include "bench/micro/kernels.h"
#include "bench/micro/link.h"

namespace spillway::micro {
namespace {

using namespace literals;

/// What the calls need. Ownership: owns the event; borrows the probe.
class Setup {
 public:
  static Result<std::unique_ptr<Setup>> make() {
    SPILLWAY_ASSIGN_OR_RETURN(OwnedStream one, OwnedStream::make(probe()));
    SPILLWAY_ASSIGN_OR_RETURN(OwnedStream other, OwnedStream::make(probe()));
    std::unique_ptr<Setup> made(new Setup(std::move(one), std::move(other)));
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL(probe().api(), EventCreate, &made->event, CU_EVENT_DISABLE_TIMING));
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL(probe().api(), EventRecord, made->event, made->one.handle()));
    SPILLWAY_RETURN_IF_ERROR(probe().finish_sync(made->one.handle()));
    return made;
  }

  ~Setup() {
    if (event != nullptr) probe().api().EventDestroy(event);
  }

  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  OwnedStream one;
  OwnedStream other;
  CUevent event = nullptr;

 private:
  Setup(OwnedStream first, OwnedStream second) : one(std::move(first)), other(std::move(second)) {}
};

using Call = std::function<Status(const Setup&)>;

/// Host time per call. The queue is drained after a fixed number of calls, outside of the time.
void call(benchmark::State& state, const Call& once) {
  constexpr int kCalls = 200;
  const auto setup = Setup::make();
  if (failed(state, setup.status())) return;
  for (auto _ : state) {
    Status status;
    const Seconds taken = host_time([&] {
      for (int i = 0; i < kCalls && status.ok(); ++i)
        status = once(*setup.value());
    });
    for (const OwnedStream* each : {&setup.value()->one, &setup.value()->other}) {
      if (status.ok()) status = probe().finish_sync(each->handle());
    }
    if (failed(state, status)) return;
    state.SetIterationTime(taken.count() / kCalls);
  }
  state.SetLabel("host's time");
}

void add(const std::string& name, const Call& once) {
  add_measured("BM_Call/" + name, [=](benchmark::State& state) { call(state, once); });
}

/// Device time for an event to let another stream's kernel run, with that kernel.
void hop(benchmark::State& state, Kernels& kernels) {
  constexpr int kHops = 50;  // few enough for the queue of a held stream
  const auto setup = Setup::make();
  const auto time = DeviceTime::make(probe());
  if (failed(state, setup.status()) || failed(state, time.status())) return;
  const driver::Api& api = probe().api();
  const Setup& with = *setup.value();
  const Lane lane{
      with.one.handle(), [&] {
        for (int i = 0; i < 2 * kHops; ++i) {
          const CUstream from = (i % 2 == 0 ? with.one : with.other).handle();
          const CUstream to = (i % 2 == 0 ? with.other : with.one).handle();
          SPILLWAY_RETURN_IF_ERROR(kernels.launch(Kernel::kEmpty, from));
          SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, EventRecord, with.event, from));
          SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, StreamWaitEvent, to, with.event, 0));
        }
        return Status();
      }};
  for (auto _ : state) {
    const auto spans = time.value()->measure_sync({&lane, 1}, Kernels::hold());
    if (failed(state, spans.status())) return;
    state.SetIterationTime(spans.value()[0].length().count() / (2 * kHops));
  }
}

/// Compiled when first used: only the benchmarks that run need them.
class LazyKernels {
 public:
  Result<Kernels*> get() {
    if (kernels_ == nullptr) {
      SPILLWAY_ASSIGN_OR_RETURN(kernels_, Kernels::make(probe()));
    }
    return kernels_.get();
  }

 private:
  std::unique_ptr<Kernels> kernels_;
};

}  // namespace

void register_benchmarks() {
  const driver::Api& api = probe().api();
  add("event_record", [&](const Setup& with) {
    return SPILLWAY_CALL(api, EventRecord, with.event, with.one.handle());
  });
  add("stream_wait_event", [&](const Setup& with) {
    return SPILLWAY_CALL(api, StreamWaitEvent, with.other.handle(), with.event, 0);
  });
  add("event_query", [&](const Setup& with) { return SPILLWAY_CALL(api, EventQuery, with.event); });
  const auto kept = std::make_shared<KeptLink>();
  for (const Way way : {Way::kIn, Way::kOut}) {
    add(std::string("copy_64KiB_") + way_name(way), [=](const Setup&) -> Status {
      SPILLWAY_ASSIGN_OR_RETURN(Link* const link, kept->of(HostKind::kArena));
      return link->lane({way, 64_KiB, 1}).submit();
    });
  }
  const auto kernels = std::make_shared<LazyKernels>();
  add("launch_kernel", [=](const Setup& with) -> Status {
    SPILLWAY_ASSIGN_OR_RETURN(Kernels* const found, kernels->get());
    return found->launch(Kernel::kEmpty, with.one.handle());
  });
  add_measured("BM_Hop", [=](benchmark::State& state) {
    const auto found = kernels->get();
    if (!failed(state, found.status())) hop(state, *found.value());
  });
}

}  // namespace spillway::micro
