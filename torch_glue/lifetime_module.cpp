// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/recorder.h"
#include "allocator/lifetime/trace.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/modules.h"

#include <pybind11/stl.h>

#include <string>

namespace spillway {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

void start_recording(int device, const std::string& path, std::size_t most) {
  auto runtime = Runtime::instance().device(DeviceId{device});
  raise(runtime.status());
  raise(runtime.value()->start_recording(path, most));
}

py::dict counts() {
  const LifetimeCounts counts = LifetimeRecorder::instance().counts();
  return py::dict("births"_a = counts.births,
                  "deaths"_a = counts.deaths,
                  "uses"_a = counts.uses,
                  "steps"_a = counts.steps,
                  "live"_a = counts.live,
                  "dropped"_a = counts.dropped,
                  "unwritten"_a = counts.unwritten);
}

py::object moment(const LifetimeRecord::Moment& moment) {
  return py::dict("event"_a = moment.event, "time"_a = moment.time, "step"_a = moment.step);
}

py::list records() {
  py::list all;
  for (const LifetimeRecord& record : LifetimeRecorder::instance().records()) {
    const bool dead = record.death.event != 0;
    all.append(py::dict("block"_a = record.block,
                        "bytes"_a = record.bytes.count(),
                        "tag"_a = shown_tag(record.tag),
                        "stream"_a = record.stream,
                        "pool"_a = record.pool,
                        "birth"_a = moment(record.birth),
                        "last_use"_a = moment(record.last_use),
                        "death"_a = dead ? moment(record.death) : py::none()));
  }
  return all;
}

py::dict trace(const std::string& path) {
  auto loaded = load_trace(path);
  raise(loaded.status());
  constexpr const char* kKinds[] = {"allocate", "free", "use", "retag", "step"};
  const Trace& trace = loaded.value();
  py::list events;
  for (const TraceEvent& event : trace.events) {
    events.append(py::make_tuple(kKinds[static_cast<std::size_t>(event.kind)],
                                 event.time,
                                 event.block,
                                 event.bytes.count(),
                                 event.tag,
                                 event.stream,
                                 event.pool));
  }
  return py::dict("device"_a = static_cast<int>(trace.device),
                  "granularity"_a = trace.granularity.count(),
                  "tags"_a = trace.tags,
                  "events"_a = events,
                  "complete"_a = trace.complete,
                  "dropped"_a = trace.dropped);
}

}  // namespace

void define_lifetimes(py::module_& module) {
  module.def("start_recording", &start_recording, "device"_a, "path"_a, "most"_a);
  module.def("stop_recording", [] { raise(LifetimeRecorder::instance().stop()); });
  module.def("recording_counts", &counts);
  module.def("lifetime_records", &records);
  module.def("read_trace", &trace, "path"_a);
}

}  // namespace spillway
