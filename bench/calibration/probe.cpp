// SPDX-License-Identifier: Apache-2.0
#include "bench/calibration/probe.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace spillway::calibration {
namespace {

constexpr const char* kKernels[] = {"empty", "wait_for_host", "arithmetic", "stream"};

void* find(const char* name, int version) {
  if (driver::emulated()) {
    using Lookup = void* (*)(const char*, int);
    const auto lookup =
        reinterpret_cast<Lookup>(dlsym(RTLD_DEFAULT, "spillway_emulator_proc_address"));
    return lookup == nullptr ? nullptr : lookup(name, version);
  }
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto get =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  void* function = nullptr;
  CUdriverProcAddressQueryResult found{};
  if (get == nullptr) return nullptr;
  if (get(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS)
    return nullptr;
  return function;
}

}  // namespace

Record::Record(std::string_view test) {
  text("test", test);
}

Record& Record::text(std::string_view key, std::string_view value) {
  line_ += line_.empty() ? "{" : ", ";
  line_ += '"' + std::string(key) + "\": \"";
  for (const char letter : value) {
    if (letter == '"' || letter == '\\') line_ += '\\';
    line_ += letter == '\n' ? ' ' : letter;
  }
  line_ += '"';
  return *this;
}

Record& Record::number(std::string_view key, double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.6g", value);
  line_ += ", \"" + std::string(key) + "\": " + digits;
  return *this;
}

Record& Record::bytes(std::string_view key, Bytes value) {
  line_ += ", \"" + std::string(key) + "\": " + std::to_string(value.count());
  return *this;
}

void Record::print() {
  std::printf("%s}\n", line_.c_str());
  std::fflush(stdout);
}

Result<std::unique_ptr<Probe>> Probe::open(const std::string& kernels, Seconds budget) {
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Api* api, driver::api());
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Device device, driver::Device::open(*api, DeviceId{0}));
  std::unique_ptr<Probe> probe(new Probe(device));
  probe->end_ = std::chrono::steady_clock::now() +
                std::chrono::duration_cast<std::chrono::nanoseconds>(budget);
#define SPILLWAY_CU(name, version) \
  probe->extra_.name = reinterpret_cast<PFN_cu##name##_v##version>(find("cu" #name, version));
#include "bench/calibration/symbols.inc"
#undef SPILLWAY_CU
  std::size_t free = 0;
  std::size_t total = 0;
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*api, MemGetInfo, &free, &total));
  probe->free_memory_ = Bytes{free};
  probe->total_memory_ = Bytes{total};
  if (!driver::emulated()) {
    char name[128] = "";
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL_EXTRA(*probe, DeviceGetName, name, sizeof name, 0));
    probe->name_ = name;
  }
  if (!kernels.empty()) SPILLWAY_RETURN_IF_ERROR(probe->load_kernels(kernels));
  return probe;
}

Status Probe::load_kernels(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (image.empty()) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "kernels " + path + ": expected a readable cubin or PTX file");
  }
  SPILLWAY_RETURN_IF_ERROR(load(image, kKernels));
  return make_timer();
}

Status Probe::load(const std::string& image, std::span<const char* const> names) {
  CUmodule module = nullptr;  // never unloaded: the process ends with the measurements
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL_EXTRA(*this, ModuleLoadData, &module, image.c_str()));
  for (const char* name : names) {
    CUfunction function = nullptr;
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL_EXTRA(*this, ModuleGetFunction, &function, module, name));
    functions_[name] = function;
  }
  return {};
}

Status Probe::make_timer() {
  void* flag = nullptr;
  SPILLWAY_RETURN_IF_ERROR(
      SPILLWAY_CALL_EXTRA(*this, MemHostAlloc, &flag, sizeof *go_, CU_MEMHOSTALLOC_DEVICEMAP));
  go_ = static_cast<int*>(flag);
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api(), EventCreate, &begin_, CU_EVENT_DEFAULT));
  return SPILLWAY_CALL(api(), EventCreate, &end_of_work_, CU_EVENT_DEFAULT);
}

bool Probe::enough_time(Seconds wanted) const {
  return std::chrono::steady_clock::now() + wanted < end_;
}

Status Probe::launch(std::string_view name,
                     CUstream stream,
                     const Blocks& blocks,
                     unsigned threads,
                     std::vector<void*> arguments) {
  const CUfunction function = functions_.find(name)->second;
  return SPILLWAY_CALL_EXTRA(*this,
                             LaunchKernel,
                             function,
                             blocks.x,
                             blocks.y,
                             1,
                             threads,
                             1,
                             1,
                             0,
                             stream,
                             arguments.data(),
                             nullptr);
}

Status Probe::finish_sync(CUstream stream) const {
  return SPILLWAY_CALL(api(), StreamSynchronize, stream);
}

Result<Seconds> Probe::stream_time_sync(CUstream stream, const std::function<Status()>& submit) {
  Status status;
  if (!has_kernels()) {
    const Seconds taken = host_time([&] {
      status = submit();
      if (status.ok()) status = finish_sync(stream);
    });
    if (!status.ok()) return status;
    return taken;
  }
  std::atomic_ref<int>(*go_).store(0);
  SPILLWAY_RETURN_IF_ERROR(launch("wait_for_host", stream, {.x = 1}, 1, {&go_}));
  status = SPILLWAY_CALL(api(), EventRecord, begin_, stream);
  if (status.ok()) status = submit();
  if (status.ok()) status = SPILLWAY_CALL(api(), EventRecord, end_of_work_, stream);
  std::atomic_ref<int>(*go_).store(1);  // before any return: a held stream never ends
  SPILLWAY_RETURN_IF_ERROR(status);
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api(), EventSynchronize, end_of_work_));
  float milliseconds = 0;
  SPILLWAY_RETURN_IF_ERROR(
      SPILLWAY_CALL_EXTRA(*this, EventElapsedTime, &milliseconds, begin_, end_of_work_));
  return Seconds(milliseconds / 1e3);
}

Seconds host_time(const std::function<void()>& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - begun;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace spillway::calibration
