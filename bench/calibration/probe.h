// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::calibration {

using Seconds = std::chrono::duration<double>;

/// The driver functions that only the probe needs. An entry is null where the driver, or the
/// emulated one, has none.
struct ExtraApi {
#define SPILLWAY_CU(name, version) PFN_cu##name##_v##version name = nullptr;
#include "bench/calibration/symbols.inc"
#undef SPILLWAY_CU
};

/// How many blocks of a kernel there are, and how they are counted.
struct Blocks {
  unsigned x;
  unsigned y = 1;
};

/// One line of JSON: what was measured, and its numbers.
class Record {
 public:
  explicit Record(std::string_view test);
  Record& text(std::string_view key, std::string_view value);
  Record& number(std::string_view key, double value);
  Record& bytes(std::string_view key, Bytes value);
  /// Ends the line and writes it to standard output.
  void print();

 private:
  std::string line_;
};

/// The device under test, its context current on the calling thread, and the time that is left.
/// Threads: confined.
class Probe {
 public:
  /// Opens device 0. `kernels` is a cubin or PTX file, or empty: then what needs kernels is left
  /// out. Errors: kNoDriver, kDriver, kInvalidArgument (the file).
  static Result<std::unique_ptr<Probe>> open(const std::string& kernels, Seconds budget);

  [[nodiscard]] const driver::Api& api() const { return *device_.api; }

  [[nodiscard]] const ExtraApi& extra() const { return extra_; }

  [[nodiscard]] const driver::Device& device() const { return device_; }

  /// As the driver calls it; "emulated GPU" for the emulated one.
  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] bool has_kernels() const { return !functions_.empty(); }

  [[nodiscard]] bool enough_time(Seconds wanted) const;

  [[nodiscard]] Bytes free_memory() const { return free_memory_; }

  [[nodiscard]] Bytes total_memory() const { return total_memory_; }

  /// Loads a cubin or PTX and finds the kernels of these names in it. It stays loaded until the
  /// process ends. Errors: kDriver.
  Status load(const std::string& image, std::span<const char* const> names);

  /// Launches a kernel that was loaded. Requires: has_kernels(). Stream: no wait. Errors: kDriver.
  Status launch(std::string_view name,
                CUstream stream,
                const Blocks& blocks,
                unsigned threads,
                std::vector<void*> arguments);

  /// Host wait for the whole stream. Errors: kDriver.
  Status finish_sync(CUstream stream) const;

  /// The device's time for what `submit` gives to `stream`. A kernel holds the stream until all of
  /// it is queued, so that the host's cost of queueing is not in it. Without kernels it is the
  /// host's time until the stream is empty.
  Result<Seconds> stream_time_sync(CUstream stream, const std::function<Status()>& submit);

 private:
  explicit Probe(const driver::Device& device)
      : device_(device), current_(*device.api, device.context) {}

  Status load_kernels(const std::string& path);
  Status make_timer();

  const driver::Device device_;
  const driver::CurrentDevice current_;
  ExtraApi extra_;
  std::map<std::string, CUfunction, std::less<>> functions_;
  int* go_ = nullptr;  // pinned, seen by the device; set to let a held stream run
  CUevent begin_ = nullptr;
  CUevent end_of_work_ = nullptr;
  std::chrono::steady_clock::time_point end_;
  Bytes free_memory_;
  Bytes total_memory_;
  std::string name_ = "emulated GPU";
};

/// Seconds on the host's clock that `work` takes.
Seconds host_time(const std::function<void()>& work);
double median(std::vector<double> values);

}  // namespace spillway::calibration

/// As SPILLWAY_CALL, for an entry of ExtraApi.
#define SPILLWAY_CALL_EXTRA(probe, name, ...)                                     \
  ((probe).extra().name == nullptr                                                \
       ? SPILLWAY_ERROR(::spillway::Code::kNoDriver, "cu" #name " was not found") \
       : ::spillway::driver::to_status(                                           \
             (probe).api(), (probe).extra().name(__VA_ARGS__), "cu" #name, __FILE__, __LINE__))
