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
#include <utility>
#include <vector>

namespace spillway::micro {

using Seconds = std::chrono::duration<double>;

/// The driver functions that only the probe needs. An entry is null where the driver, or the
/// emulated one, has none.
struct ExtraApi {
#define SPILLWAY_CU(name, version) PFN_cu##name##_v##version name = nullptr;
#include "bench/micro/symbols.inc"
#undef SPILLWAY_CU
};

/// How many blocks of a kernel there are, and how they are counted.
struct Blocks {
  unsigned x;
  unsigned y = 1;
};

/// The device under test, its context current on the calling thread. Threads: confined.
class Probe {
 public:
  /// Opens device 0. Errors: kNoDriver, kDriver.
  static Result<std::unique_ptr<Probe>> open();

  [[nodiscard]] const driver::Api& api() const { return *device_.api; }

  [[nodiscard]] const ExtraApi& extra() const { return extra_; }

  [[nodiscard]] const driver::Device& device() const { return device_; }

  /// As the driver calls it; "emulated GPU" for the emulated one.
  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] bool has_kernels() const { return !functions_.empty(); }

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

 private:
  explicit Probe(const driver::Device& device)
      : device_(device), current_(*device.api, device.context) {}

  const driver::Device device_;
  const driver::CurrentDevice current_;
  ExtraApi extra_;
  std::map<std::string, CUfunction, std::less<>> functions_;
  std::string name_ = "emulated GPU";
};

/// A non-blocking stream. Ownership: owns the stream; borrows the probe.
class OwnedStream {
 public:
  static Result<OwnedStream> make(Probe& probe) {
    CUstream handle = nullptr;
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL(probe.api(), StreamCreateWithPriority, &handle, CU_STREAM_NON_BLOCKING, 0));
    return OwnedStream(probe, handle);
  }

  OwnedStream(OwnedStream&& other) noexcept
      : probe_(other.probe_), handle_(std::exchange(other.handle_, nullptr)) {}

  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(OwnedStream&&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  ~OwnedStream() {
    if (handle_ != nullptr) probe_->api().StreamDestroy(handle_);
  }

  [[nodiscard]] CUstream handle() const { return handle_; }

 private:
  OwnedStream(Probe& probe, CUstream handle) : probe_(&probe), handle_(handle) {}

  Probe* probe_;
  CUstream handle_;
};

enum class Way { kIn, kOut };

/// Seconds on the host's clock that `work` takes.
Seconds host_time(const std::function<void()>& work);

/// The same for driver calls: of the emulated GPU's clock if that is virtual.
Seconds time_of_calls(const std::function<void()>& work);

}  // namespace spillway::micro

/// As SPILLWAY_CALL, for an entry of ExtraApi.
#define SPILLWAY_CALL_EXTRA(probe, name, ...)                                     \
  ((probe).extra().name == nullptr                                                \
       ? SPILLWAY_ERROR(::spillway::Code::kNoDriver, "cu" #name " was not found") \
       : ::spillway::driver::to_status(                                           \
             (probe).api(), (probe).extra().name(__VA_ARGS__), "cu" #name, __FILE__, __LINE__))
