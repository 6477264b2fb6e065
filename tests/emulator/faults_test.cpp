// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"
#include "tests/emulator/in_process.h"

namespace {

using namespace emulated;

const char* fault(const char* spec) {
  return spillway_emulator_fault(spec);
}

/// Faults stay with a process where they are sticky, so each case has one of its own and compares
/// what that wrote.
template <typename Body>
std::string said(Body body) {
  return in_process({}, body);
}

TEST(FaultsTest, TheChosenCallFailsAndTheOthersDoNot) {
  EXPECT_EQ(said([] {
              void* at = nullptr;
              fault("cudaMalloc:2=out_of_memory");
              say("first", cudaMalloc(&at, kUnit));
              say("second", cudaMalloc(&at, kUnit));
              say("third", cudaMalloc(&at, kUnit));
              say("used", static_cast<int>(spillway_emulator_used(0) / kUnit));
            }),
            "first 0\nsecond 2\nthird 0\nused 2\n");
}

TEST(FaultsTest, APlusMeansAllLaterCallsToo) {
  EXPECT_EQ(said([] {
              fault("cudaDeviceSynchronize:2+=unknown");
              say("first", cudaDeviceSynchronize());
              say("second", cudaDeviceSynchronize());
              say("third", cudaDeviceSynchronize());
            }),
            "first 0\nsecond 999\nthird 999\n");
}

TEST(FaultsTest, AFaultOfADriverFunctionReachesTheRuntimeAboveIt) {
  EXPECT_EQ(said([] {
              void* at = nullptr;
              fault("cuMemAlloc:1=out_of_memory");
              say("runtime", cudaMalloc(&at, kUnit));
              say("last", cudaGetLastError());
              say("driver", CU(MemGetInfo, 3020)(nullptr, nullptr));
            }),
            "runtime 2\nlast 2\ndriver 1\n");
}

TEST(FaultsTest, AnIllegalAddressStays) {
  EXPECT_EQ(said([] {
              void* at = nullptr;
              fault("cudaMemcpyAsync:1=illegal_address");
              cudaMalloc(&at, kUnit);
              say("copy", cudaMemcpyAsync(at, at, 1, cudaMemcpyDefault, nullptr));
              say("next", cudaDeviceSynchronize());
              say("driver", CU(CtxSynchronize, 2000)());
              cudaGetLastError();
              say("last", cudaGetLastError());
            }),
            "copy 700\nnext 700\ndriver 700\nlast 700\n");
}

TEST(FaultsTest, ErrorsMayBeNumbersAndEntriesMany) {
  EXPECT_EQ(said([] {
              fault("cudaDeviceSynchronize:1=2,cudaDeviceSynchronize:2=101");
              say("first", cudaDeviceSynchronize());
              say("second", cudaDeviceSynchronize());
            }),
            "first 2\nsecond 101\n");
}

TEST(FaultsTest, NullClearsThem) {
  EXPECT_EQ(said([] {
              fault("cudaDeviceSynchronize:1+=unknown");
              fault(nullptr);
              say("cleared", cudaDeviceSynchronize());
            }),
            "cleared 0\n");
}

TEST(FaultsTest, TheSettingIsTaken) {
  EXPECT_EQ(in_process({{"SPILLWAY_EMULATE_FAULT", "cuInit:1=no_device"}},
                       [] { say("init", CU(Init, 2000)(0)); }),
            "init 100\n");
}

TEST(FaultsTest, ABadSettingIsAnErrorThatNamesTheEntry) {
  const std::string written =
      in_process({{"SPILLWAY_EMULATE_FAULT", "cuMemCreate:1=out_of_memory,cuNothing:1=unknown"}},
                 [] { say("error", cudaDeviceSynchronize()); });

  EXPECT_NE(
      written.find("SPILLWAY_EMULATE_FAULT: fault \"cuNothing:1=unknown\": expected the name"),
      std::string::npos)
      << written;
  EXPECT_NE(written.find("error 3\n"), std::string::npos) << written;
}

TEST(FaultsTest, BadSpecsSayWhatIsWrongAndChangeNothing) {
  const std::string written = said([] {
    fault("cudaDeviceSynchronize:1=unknown");
    for (const char* spec : {"cuMemCreate",
                             "cuMemCreate:0=unknown",
                             "cuMemCreate:-1=unknown",
                             "cuMemCreate:1=soon",
                             "cuMemCreate:1=0",
                             "cuMemCreate:1=5000",
                             "cuMemAlloc_v2:1=unknown",
                             "printf:1=unknown"}) {
      dprintf(STDOUT_FILENO, "%s\n", fault(spec));
    }
    say("still", cudaDeviceSynchronize());
  });

  EXPECT_EQ(
      written,
      "fault \"cuMemCreate\": expected function:n=error or function:n+=error, such as "
      "cuMemCreate:3=out_of_memory\n"
      "fault \"cuMemCreate:0=unknown\": expected the number of a call, from 1, after the colon\n"
      "fault \"cuMemCreate:-1=unknown\": expected the number of a call, from 1, after the "
      "colon\n"
      "fault \"cuMemCreate:1=soon\": expected an error after \"=\", such as out_of_memory, "
      "illegal_address or 719\n"
      "fault \"cuMemCreate:1=0\": expected an error after \"=\", such as out_of_memory, "
      "illegal_address or 719\n"
      "fault \"cuMemCreate:1=5000\": expected an error after \"=\", such as out_of_memory, "
      "illegal_address or 719\n"
      "fault \"cuMemAlloc_v2:1=unknown\": expected the name of an emulated driver or runtime "
      "function before the colon\n"
      "fault \"printf:1=unknown\": expected the name of an emulated driver or runtime function "
      "before the colon\n"
      "still 999\n");
}

}  // namespace
