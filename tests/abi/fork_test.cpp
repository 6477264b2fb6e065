// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <spillway/spillway.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// What `call` returns in a forked child.
int in_child(const std::function<int()>& call) {
  const pid_t child = fork();
  if (child == 0) _exit(call());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ForkedChildTest, EveryFunctionReturnsNotReadyAndTheParentGoesOn) {
  const std::string path =
      testing::TempDir() + "spillway_fork_" + std::to_string(getpid()) + ".trace";
  void* block = nullptr;
  ASSERT_EQ(spillway_tag_push("parent"), SPILLWAY_OK);
  ASSERT_EQ(spillway_trace_begin(0, path.c_str()), SPILLWAY_OK);
  ASSERT_EQ(spillway_allocate(0, 1000, nullptr, &block), SPILLWAY_OK);
  ASSERT_EQ(spillway_allow_eviction("parent", 1), SPILLWAY_OK);
  const std::string before = content_of(path);
  void* other = nullptr;
  spillway_device_stats stats{};
  stats.struct_size = sizeof stats;
  const std::vector<std::pair<const char*, std::function<int()>>> functions = {
      {"allocate",
       [&] {
         return spillway_allocate(0, 1, nullptr, &other);
       }},
      {"release",
       [&] {
         return spillway_release(block);
       }},
      {"use",
       [&] {
         return spillway_use(block, nullptr);
       }},
      {"set_limit",
       [&] {
         return spillway_set_limit(0, SPILLWAY_LIMIT_SOFT, 1 << 22U);
       }},
      {"tag_push",
       [&] {
         return spillway_tag_push("child");
       }},
      {"tag_pop",
       [&] {
         return spillway_tag_pop();
       }},
      {"pause",
       [&] {
         return spillway_pause("parent", 0, nullptr);
       }},
      {"resume",
       [&] {
         return spillway_resume("parent");
       }},
      {"allow_eviction",
       [&] {
         return spillway_allow_eviction("parent", 1);
       }},
      {"forbid_eviction",
       [&] {
         return spillway_allow_eviction("parent", 0);
       }},
      {"trace_begin",
       [&] {
         return spillway_trace_begin(0, path.c_str());
       }},
      {"trace_end",
       [&] {
         return spillway_trace_end();
       }},
      {"device_statistics",
       [&] {
         return spillway_device_statistics(0, &stats);
       }},
      {"step_end",
       [&] {
         return spillway_step_end();
       }},
  };

  for (const auto& [name, call] : functions)
    EXPECT_EQ(in_child(call), SPILLWAY_NOT_READY) << name;

  EXPECT_EQ(content_of(path), before) << "the child wrote into the parent's trace";
  EXPECT_EQ(spillway_trace_end(), SPILLWAY_OK);
  EXPECT_EQ(spillway_allow_eviction("parent", 0), SPILLWAY_OK);
  EXPECT_EQ(spillway_release(block), SPILLWAY_OK);
  EXPECT_EQ(spillway_tag_pop(), SPILLWAY_OK);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace spillway
