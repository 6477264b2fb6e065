// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/runtime_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

namespace spillway {
namespace {

class ForkTest : public RuntimeTest {
 protected:
  /// Whether `claim` holds in a forked child.
  template <typename Claim>
  static bool in_child(Claim claim) {
    const pid_t child = fork();
    if (child == 0) _exit(claim() ? 0 : 1);
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
};

TEST_F(ForkTest, AForkedChildKeepsEverything) {
  enter(kTag, 1.0);

  EXPECT_TRUE(in_child([&] { return !runtime_->step().decide(kTag, DeviceId{0}, 1_MiB).offload; }));

  runtime_->step().leave_region(kTag);
}

TEST_F(ForkTest, AForkedChildHasNoDevices) {
  ASSERT_TRUE(runtime_->device(DeviceId{0}).ok());

  EXPECT_TRUE(in_child([&] {
    return runtime_->device(DeviceId{0}).status().code() == Code::kNotReady &&
           runtime_->devices().if_made(DeviceId{0}) == nullptr;
  }));
}

TEST_F(ForkTest, HandlesThatAForkedChildDestroysChangeNothing) {
  auto saved = forward(kTag, 1.0, {1_MiB});

  EXPECT_TRUE(in_child([&] {
    runtime_->step().unpacked();
    runtime_->step().handle_gone();
    runtime_->step().end(StepEnd::kRequested);
    return runtime_->stats().devices.empty();
  }));

  EXPECT_EQ(runtime_->stats().saved_tensor_handles, 1);
  backward(std::move(saved));
}

TEST_F(ForkTest, TheParentGoesOnAsBefore) {
  EXPECT_TRUE(in_child([] { return true; }));

  train(1.0, {1_MiB});

  EXPECT_EQ(last().offloaded, 1_MiB);
}

}  // namespace
}  // namespace spillway
