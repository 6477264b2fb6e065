// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/emulator/in_process.h"

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <string>

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

TEST(SettingsTest, ASeedThatIsNoNumberIsAnError) {
  for (const char* value : {"shuffled", "shuffled:", "shuffled:x", "shuffled:-1", "shuffled:7 "}) {
    const std::string written = in_process({{"SPILLWAY_EMULATE_SCHEDULE", value}}, ask);

    EXPECT_NE(written.find("such as shuffled:7"), std::string::npos) << written;
  }
}

TEST(SettingsTest, AnUnknownNameIsAnError) {
  const std::string written = in_process({{"SPILLWAY_EMULATE_SHEDULE", "late"}}, ask);

  EXPECT_NE(written.find("SPILLWAY_EMULATE_SHEDULE: unknown setting"), std::string::npos)
      << written;
  EXPECT_NE(written.find("error 3"), std::string::npos);
}

TEST(SettingsTest, ASettingThatIsNotAvailableYetSaysSo) {
  const std::string written = in_process({{"SPILLWAY_EMULATE_PROFILE", "h200"}}, ask);

  EXPECT_NE(written.find("SPILLWAY_EMULATE_PROFILE=h200: not available"), std::string::npos)
      << written;
  EXPECT_NE(written.find("error 3"), std::string::npos);
}

TEST(SettingsTest, ASpeedOfTheLinkNeedsTheVirtualClock) {
  const std::string written = in_process({{"SPILLWAY_EMULATE_LINK_H2D", "50GiB"}}, ask);

  EXPECT_NE(written.find("SPILLWAY_EMULATE_LINK_H2D=50GiB: needs SPILLWAY_EMULATE_CLOCK=virtual"),
            std::string::npos)
      << written;
}

TEST(SettingsTest, ATimeNeedsItsUnit) {
  for (const char* value : {"3", "us", "-3us", "3 us", "3h", "4000s", "1e3us"}) {
    const std::string written = in_process(
        {{"SPILLWAY_EMULATE_CLOCK", "virtual"}, {"SPILLWAY_EMULATE_LATENCY", value}}, ask);

    EXPECT_NE(written.find("such as 3us or 0.5ms"), std::string::npos) << value << written;
  }
}

TEST(SettingsTest, TooManyDevicesAreAnError) {
  const std::string written = in_process({{"SPILLWAY_EMULATE_DEVICES", "9"}}, ask);

  EXPECT_NE(written.find("from 1 to 8"), std::string::npos) << written;
}

TEST(SettingsTest, WithoutTheSwitchTheLibraryRefuses) {
  const std::string written = in_process({{"SPILLWAY_EMULATE", "0"}}, ask);

  EXPECT_NE(written.find("set SPILLWAY_EMULATE=1"), std::string::npos) << written;
  EXPECT_NE(written.find("ready 0"), std::string::npos);
}

TEST(SettingsTest, TheDriverSaysThatItIsNotInitialisedToo) {
  const std::string written = in_process({{"SPILLWAY_EMULATE_CHECK", "yes"}}, [] {
    using Init = CUresult (*)(unsigned);
    const auto init = reinterpret_cast<Init>(spillway_emulator_proc_address("cuInit", 2000));
    dprintf(STDOUT_FILENO, "init %d", init(0));
  });

  EXPECT_NE(written.find("init 3"), std::string::npos) << written;
}

TEST(SettingsTest, AForkedChildIsNotInitialisedAndDoesNotHang) {
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
