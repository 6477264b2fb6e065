// SPDX-License-Identifier: Apache-2.0
// Rights of another process, and of peers, to shared memory.
#include "allocator/base/process.h"
#include "allocator/sharing/exports.h"
#include "allocator/sharing/imports.h"
#include "allocator/sharing/memory_handle.h"
#include "emulator/emulator.h"
#include "tests/sharing/sharing_fixture.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

namespace spillway {
namespace {

TEST(OtherProcess, ItsStartDistinguishesItFromAProcessWithTheSameNumber) {
  const auto start = start_of(getpid());
  ASSERT_TRUE(start.has_value());

  EXPECT_TRUE(OtherProcess::open(getpid(), *start).ok());
  EXPECT_EQ(OtherProcess::open(getpid(), *start + 1).status().code(), Code::kNotReady);
}

/// From here on this thread may not take files from other processes, as without the right to trace
/// them. False where the machine does not let a thread give up a system call.
bool give_up_taking_files() {
  constexpr unsigned kPidfdGetfd = 438;
  std::array<sock_filter, 4> program = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPidfdGetfd, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog filter{};
  filter.len = program.size();
  filter.filter = program.data();
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(SharingTest, WhereFilesMayNotBeTakenTheErrorStatesWhatToAllow) {
  const SharedBlock place = shared(allocate(4_MiB));
  bool given_up = false;
  Status status;

  std::thread([&] {
    given_up = give_up_taking_files();
    if (given_up) status = imports_->open(place.handle).status();
  }).join();

  if (!given_up) GTEST_SKIP() << "this machine lets no thread give up a system call";
  EXPECT_EQ(status.code(), Code::kNotReady);
  EXPECT_NE(status.detail().find("EPERM"), std::string::npos) << status.detail();
  EXPECT_NE(status.detail().find("kernel.yama.ptrace_scope=0"), std::string::npos);
  EXPECT_NE(status.detail().find("SYS_PTRACE"), std::string::npos);
}

/// The devices that were let into memory at `at`, in the order of the calls.
struct Access {
  inline static CUdeviceptr at = 0;
  inline static std::vector<int> devices;
  inline static CUresult answer = CUDA_SUCCESS;

  static CUresult set(CUdeviceptr where, size_t size, const CUmemAccessDesc* access, size_t count) {
    if (where != at) return driver::api().value()->MemSetAccess(where, size, access, count);
    for (size_t each = 0; each < count; ++each)
      devices.push_back(access[each].location.id);
    return answer;
  }
};

TEST_F(SharingTest, APeerReachesWhatWasOpenedBeforeAndIsWaitedForAtTheEnd) {
  auto memory = opened(shared(allocate(4_MiB)).handle);
  const driver::Device peer{&table_, DeviceId{1}, device_.context};
  Access::at = driver::DevicePtr(memory.get()).address();
  Access::devices.clear();
  Access::answer = CUDA_SUCCESS;
  table_.MemSetAccess = Access::set;

  EXPECT_TRUE(imports_->enable_peer(peer).ok());
  EXPECT_TRUE(imports_->enable_peer(peer).ok());

  EXPECT_EQ(Access::devices, std::vector{1});
  const auto syncs = driver::counters().host_syncs;
  memory.reset();
  EXPECT_EQ(driver::counters().host_syncs, syncs + 2);
}

TEST_F(SharingTest, APeerThatCannotReachWhatIsOpenIsNone) {
  const auto memory = opened(shared(allocate(4_MiB)).handle);
  const driver::Device peer{&table_, DeviceId{1}, device_.context};
  Access::at = driver::DevicePtr(memory.get()).address();
  Access::devices.clear();
  Access::answer = CUDA_ERROR_UNKNOWN;
  table_.MemSetAccess = Access::set;

  EXPECT_EQ(imports_->enable_peer(peer).code(), Code::kDriver);

  Access::answer = CUDA_SUCCESS;
  EXPECT_TRUE(imports_->enable_peer(peer).ok());
  EXPECT_EQ(Access::devices, (std::vector{1, 1}));
}

}  // namespace
}  // namespace spillway
