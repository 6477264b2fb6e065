// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"
#include "tests/emulator/in_process.h"

#include <csignal>

namespace {

using namespace emulated;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/// A device address that nothing is mapped at.
volatile char* unmapped() {
  CUdeviceptr base = 0;
  cudaSetDevice(0);
  CU(MemAddressReserve, 10020)(&base, kUnit, 0, 0, 0);
  return reinterpret_cast<volatile char*>(base);
}

const std::string kEnd = "signal " + std::to_string(SIGSEGV) + "\n";

TEST(HostFaultsTest, TouchingUnmappedDeviceMemoryIsALineAndTheSignal) {
  const std::string written = in_process({}, [] { *unmapped() = 1; });

  EXPECT_EQ(written.find("spillway-emulator: the host touched device memory at 0x"), 0U) << written;
  EXPECT_NE(written.find(" that is not mapped\n" + kEnd), std::string::npos) << written;
}

TEST(HostFaultsTest, AnotherFaultIsTheProgramsOwn) {
  const std::string written = in_process({}, [] {
    unmapped();
    *reinterpret_cast<volatile char*>(4096) = 1;
  });

  EXPECT_EQ(written, kEnd);
}

TEST(HostFaultsTest, ASignalThatWasSentEndsTheProcessToo) {
  EXPECT_EQ(in_process({},
                       [] {
                         unmapped();
                         kill(getpid(), SIGSEGV);
                       }),
            kEnd);
}

TEST(HostFaultsTest, TheHandlerThatWasThereBeforeRuns) {
  const std::string written = in_process({}, [] {
    std::signal(SIGSEGV, [](int) {
      dprintf(STDOUT_FILENO, "the program's own handler\n");
      _exit(3);
    });
    *unmapped() = 1;
  });

  EXPECT_NE(written.find("that is not mapped\nthe program's own handler\nstatus 3\n"),
            std::string::npos)
      << written;
}

TEST(HostFaultsTest, AHandlerThatTheProgramInstallsLaterIsItsOwn) {
  const std::string written = in_process({}, [] {
    volatile char* at = unmapped();
    std::signal(SIGSEGV, [](int) { _exit(4); });
    *at = 1;
  });

  EXPECT_EQ(written, "status 4\n");
}

TEST(HostFaultsTest, InvalidSettingsInstallNothing) {
  const std::string written = in_process({{"SPILLWAY_EMULATE_DEVICES", "99"}}, [] {
    cudaSetDevice(0);
    struct sigaction now {};
    sigaction(SIGSEGV, nullptr, &now);
    dprintf(STDOUT_FILENO, now.sa_handler == SIG_DFL ? "default\n" : "changed\n");
  });

  EXPECT_NE(written.find("default\n"), std::string::npos) << written;
}

#else

TEST(HostFaultsTest, TheSanitizersHandlerIsTheOneBefore) {
  GTEST_SKIP() << "a sanitizer reports the fault itself and ends the process its own way";
}

#endif

}  // namespace
