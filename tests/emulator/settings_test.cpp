// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/settings.h"

#include "allocator/base/setting_values.h"
#include "tests/emulator/emulated.h"
#include "tests/emulator/in_process.h"

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace {

using emulated::in_process;

/// Error number, error text and readiness of the first call.
void ask() {
  int devices = -1;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  dprintf(STDOUT_FILENO,
          "error %d devices %d ready %d: %s\n",
          error,
          devices,
          spillway_emulator_ready(),
          cudaGetErrorString(error));
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(SettingsTest, DefaultsAreOneDeviceOfEightGibibytes) {
  const std::string written = in_process({}, [] {
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    dprintf(STDOUT_FILENO, "%zu ", total);
    ask();
  });

  EXPECT_EQ(written, "8589934592 error 0 devices 1 ready 1: no error\n");
}

TEST(SettingsTest, DevicesAndMemoryAreTaken) {
  const std::string written =
      in_process({{"SPILLWAY_EMULATE_DEVICES", "3"}, {"SPILLWAY_EMULATE_MEMORY", "1.5GiB"}}, [] {
        cudaDeviceProp properties{};
        cudaGetDeviceProperties(&properties, 2);
        dprintf(STDOUT_FILENO, "%s %zu ", properties.name, properties.totalGlobalMem);
        ask();
      });

  EXPECT_EQ(written, "Emulated GPU (Spillway) 1610612736 error 0 devices 3 ready 1: no error\n");
}

TEST(SettingsTest, CudaTakesItsPartOfTheMemory) {
  const std::string written = in_process(
      {{"SPILLWAY_EMULATE_MEMORY", "1GiB"}, {"SPILLWAY_EMULATE_CUDA_CONTEXT", "256MiB"}}, [] {
        std::size_t free = 0;
        std::size_t total = 0;
        cudaMemGetInfo(&free, &total);
        void* at = nullptr;
        const cudaError_t all = cudaMalloc(&at, total);
        const cudaError_t rest = cudaMalloc(&at, free);
        dprintf(STDOUT_FILENO, "%zu %zu %d %d", free, total, all, rest);
      });

  EXPECT_EQ(written, "805306368 1073741824 2 0");
}

TEST(SettingsTest, AContextOfAllTheMemoryIsAnError) {
  const std::string written = in_process(
      {{"SPILLWAY_EMULATE_MEMORY", "1GiB"}, {"SPILLWAY_EMULATE_CUDA_CONTEXT", "1GiB"}}, ask);

  EXPECT_NE(
      written.find("SPILLWAY_EMULATE_CUDA_CONTEXT: leaves nothing of SPILLWAY_EMULATE_MEMORY"),
      std::string::npos)
      << written;
}

TEST(SettingsTest, TheChipIsTaken) {
  const std::string written = in_process(
      {{"SPILLWAY_EMULATE_CAPABILITY", "8.9"}, {"SPILLWAY_EMULATE_MULTIPROCESSORS", "58"}}, [] {
        cudaDeviceProp properties{};
        cudaGetDeviceProperties(&properties, 0);
        int multiprocessors = 0;
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
        dprintf(STDOUT_FILENO,
                "%d.%d %d %d %d %zu",
                properties.major,
                properties.minor,
                properties.multiProcessorCount,
                multiprocessors,
                properties.maxThreadsPerMultiProcessor,
                properties.sharedMemPerBlockOptin);
      });

  EXPECT_EQ(written, "8.9 58 58 1536 101376");
}

TEST(SettingsTest, ABadValueIsAnErrorThatNamesItAndIsPrintedOnce) {
  const std::string written = in_process({{"SPILLWAY_EMULATE_SCHEDULE", "soon"}}, [] {
    ask();
    ask();
  });

  EXPECT_NE(written.find("error 3"), std::string::npos) << written;
  EXPECT_NE(written.find("ready 0: SPILLWAY_EMULATE_SCHEDULE=soon: expected one of eager, late, "
                         "shuffled:SEED"),
            std::string::npos)
      << written;
  EXPECT_EQ(occurrences(written, "spillway-emulator: SPILLWAY_EMULATE_SCHEDULE=soon"), 1U);
}

TEST(SettingsTest, NamesValuesAndRulesOfTheTableAreChecked) {
  const std::pair<const char*, const char*> invalid[] = {
      {"SPILLWAY_EMULATE_SHEDULE", "late"},
      {"SPILLWAY_EMULATE_RATES", "half=0"},
      {"SPILLWAY_EMULATE_DEVICES", "9"},
      {"SPILLWAY_EMULATE_ASSUME", "finite"},    // needs a dry run
      {"SPILLWAY_EMULATE_LINK_H2D", "50GiB"}};  // needs the virtual clock
  for (const auto& [name, value] : invalid) {
    const std::string written = in_process({{name, value}}, ask);

    EXPECT_NE(written.find(std::string("ready 0: ") + name), std::string::npos) << written;
    EXPECT_NE(written.find("error 3"), std::string::npos) << written;
  }
  EXPECT_EQ(in_process({{"SPILLWAY_OFFLOAD_RATIO", "many"}}, ask),  // the job's to check
            "error 0 devices 1 ready 1: no error\n");
}

TEST(SettingsTest, EveryCapabilityOfTheTableIsDescribed) {
  using namespace spillway::settings;  // NOLINT(google-build-using-namespace): of this function
  for (const std::string_view each : items(find("SPILLWAY_EMULATE_CAPABILITY")->choices)) {
    const std::string capability(each);
    EXPECT_EQ(in_process({{"SPILLWAY_EMULATE_CAPABILITY", capability.c_str()}}, ask),
              "error 0 devices 1 ready 1: no error\n");
  }
}

TEST(SettingsTest, AssumptionsAreTakenAndTheOthersStay) {
  const std::string written =
      in_process({{"SPILLWAY_EMULATE_SHAPE_ONLY", "1"},
                  {"SPILLWAY_EMULATE_ASSUME", "finite,nonzero=0.5,value=-2"}},
                 [] {
                   spillway_emulator_assumptions assumed{};
                   spillway_emulator_assumed(&assumed);
                   dprintf(STDOUT_FILENO,
                           "%g %g %g %g",
                           assumed.nonzero,
                           assumed.unique,
                           assumed.value,
                           assumed.finite);
                 });

  EXPECT_EQ(written, "0.5 -1 -2 1");
}

TEST(SettingsTest, AProfileIsForTheLauncher) {
  const std::string written = in_process({{"SPILLWAY_EMULATE_PROFILE", "h200"}}, ask);

  EXPECT_NE(written.find("SPILLWAY_EMULATE_PROFILE=h200: is read by spillway run"),
            std::string::npos)
      << written;
  EXPECT_NE(written.find("error 3"), std::string::npos);
}

/// How many of three devices CUDA_VISIBLE_DEVICES shows, and their places on the bus.
std::string seen(const char* value) {
  return in_process({{"SPILLWAY_EMULATE_DEVICES", "3"}, {"CUDA_VISIBLE_DEVICES", value}}, [] {
    int devices = 0;
    cudaGetDeviceCount(&devices);
    dprintf(STDOUT_FILENO, "%d:", devices);
    for (int device = 0; device < devices; ++device) {
      char place[16] = "";
      cudaDeviceGetPCIBusId(place, sizeof place, device);
      dprintf(STDOUT_FILENO, " %s", place);
    }
  });
}

TEST(SettingsTest, TheProgramSeesTheVisibleDevicesInItsOwnOrder) {
  EXPECT_EQ(seen("1"), "1: 0000:02:00.0");
  EXPECT_EQ(seen("2,0"), "2: 0000:03:00.0 0000:01:00.0");
  EXPECT_EQ(seen("0, 1,2"), "3: 0000:01:00.0 0000:02:00.0 0000:03:00.0");
}

TEST(SettingsTest, TheVisibleDevicesEndAtTheFirstThatIsNone) {
  EXPECT_EQ(seen("1,3,0"), "1: 0000:02:00.0");
  EXPECT_EQ(seen("1,-1,0"), "1: 0000:02:00.0");
  EXPECT_EQ(seen("1,,0"), "1: 0000:02:00.0");
  EXPECT_EQ(seen("0,GPU-e0e0e0e0"), "1: 0000:01:00.0");
}

TEST(SettingsTest, ADeviceThatIsNamedTwiceHidesAll) {
  EXPECT_EQ(seen("0,1,0"), "0:");
}

TEST(SettingsTest, HiddenDevicesAreUnknownToTheDriver) {
  const std::string written =
      in_process({{"SPILLWAY_EMULATE_DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", "1"}}, [] {
        int devices = 0;
        CUdevice device = 0;
        CUmemGenericAllocationHandle handle = 0;
        const CUmemAllocationProp hidden = emulated::memory_of(1);
        dprintf(STDOUT_FILENO, "%d ", CU(Init, 2000)(0));
        CU(DeviceGetCount, 2000)(&devices);
        dprintf(STDOUT_FILENO,
                "%d %d %d %d",
                devices,
                CU(DeviceGet, 2000)(&device, 1),
                CU(MemCreate, 10020)(&handle, emulated::kUnit, &hidden, 0),
                cudaSetDevice(1));
      });

  EXPECT_EQ(written, "0 1 101 101 101");
}

TEST(SettingsTest, WithNoneVisibleThereIsNoDevice) {
  for (const char* value : {"", "-1", "x", "2"}) {
    const std::string written =
        in_process({{"SPILLWAY_EMULATE_DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", value}}, [] {
          void* at = nullptr;
          int device = 0;
          int version = 0;
          dprintf(STDOUT_FILENO, "%d ", CU(Init, 2000)(0));
          dprintf(STDOUT_FILENO, "%d ", CU(DeviceGet, 2000)(&device, 0));
          dprintf(STDOUT_FILENO, "%d %d ", cudaMalloc(&at, 1), cudaGetDevice(&device));
          dprintf(STDOUT_FILENO, "%d %d ", cudaSetDevice(0), cudaRuntimeGetVersion(&version));
          spillway_emulator_drain(nullptr);
          ask();
        });

    EXPECT_EQ(written, "100 3 100 100 100 0 error 100 devices -1 ready 1: no device\n") << value;
  }
}

TEST(SettingsTest, WithoutTheSwitchTheLibraryRefuses) {
  const std::string written = in_process({{"SPILLWAY_EMULATE", "0"}}, ask);

  EXPECT_NE(written.find("Set SPILLWAY_EMULATE=1"), std::string::npos) << written;
  EXPECT_NE(written.find("ready 0"), std::string::npos);
}

TEST(SettingsTest, TheDriverStatesThatItIsNotInitializedToo) {
  const std::string written = in_process({{"SPILLWAY_EMULATE_CHECK", "yes"}}, [] {
    using Init = CUresult (*)(unsigned);
    const auto init = reinterpret_cast<Init>(spillway_emulator_proc_address("cuInit", 2000));
    dprintf(STDOUT_FILENO, "init %d", init(0));
  });

  EXPECT_NE(written.find("init 3"), std::string::npos) << written;
}

TEST(SettingsTest, AForkedChildIsNotInitializedAndDoesNotHang) {
  const std::string written = in_process({}, [] {
    ask();
    if (fork() == 0) {
      ask();
      _exit(0);
    }
    wait(nullptr);
    ask();
  });

  EXPECT_EQ(written,
            "error 0 devices 1 ready 1: no error\n"
            "error 3 devices -1 ready 0: initialization error\n"
            "error 0 devices 1 ready 1: no error\n");
}

}  // namespace
