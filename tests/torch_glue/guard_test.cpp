// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/fork.h"
#include "tests/torch_glue/model_state_fixture.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace spillway {
namespace {

class GuardTest : public ModelStateTest {};

at::Tensor& captured_by_operator() {
  static at::Tensor tensor;
  return tensor;
}

/// An operator of another library that uses a tensor that is not its argument.
at::Tensor add_captured(const at::Tensor& x) {
  return x + captured_by_operator();
}

TEST_F(GuardTest, AnOperatorOfAnotherLibraryMayUseManagedTensorsThatAreNotItsArguments) {
  torch::Library library(torch::Library::DEF, "spillway_test", std::nullopt, __FILE__, __LINE__);
  library.def("add_captured(Tensor x) -> Tensor");
  library.impl("add_captured", c10::DispatchKey::CUDA, TORCH_FN(add_captured));
  const at::Tensor x = managed(1);
  captured_by_operator() = managed(0);
  offloaded(x);
  offloaded(captured_by_operator());
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("spillway_test::add_captured", "");
  EXPECT_TRUE(holds(op.typed<at::Tensor(const at::Tensor&)>().call(x), values(1) + values(0)));
  EXPECT_FALSE(of(x)->pinned());
  captured_by_operator().reset();
}

TEST_F(GuardTest, RunningStatisticsAreCopiedOutWhateverTheirClass) {
  const auto options = at::device(at::kCUDA);
  const at::Tensor mean = manage(at::zeros({4}, options));
  const at::Tensor variance = manage(at::ones({4}, options));
  offloaded(mean);
  offloaded(variance);
  const at::Tensor x = on_device(values(0, 64).reshape({2, 4, 8}));
  at::native_batch_norm(x, {}, {}, mean, variance, /*training=*/true, 0.5, 1e-5);
  const at::Tensor expected = mean.cpu();
  EXPECT_FALSE(expected.equal(at::zeros({4})));
  offloaded(mean);
  offloaded(variance);
  EXPECT_TRUE(holds(mean, expected));
}

TEST_F(GuardTest, ATensorThatIsSetToAManagedStorageIsGuarded) {
  const at::Tensor x = managed(2);
  at::Tensor alias = at::empty({0}, at::device(at::kCUDA));
  alias.set_(x);
  offloaded(x);
  EXPECT_TRUE(holds(alias, values(2)));
}

TEST_F(GuardTest, AStorageInASparseTensorStays) {
  const at::Tensor x = managed(1, 8);
  const at::Tensor indices = at::arange(8, at::device(at::kCUDA).dtype(at::kLong)).reshape({1, 8});
  offloaded(x);
  const at::Tensor sparse = at::_sparse_coo_tensor_unsafe(indices, x, {8});
  EXPECT_EQ(of(x)->offload(), Bytes{});
  EXPECT_TRUE(of(x)->kept());
}

TEST_F(GuardTest, ALazyCopyOfAManagedTensorIsACopy) {
  const at::Tensor x = managed(3);
  offloaded(x);
  const at::Tensor copy = at::_lazy_clone(x);
  x.add_(1);
  EXPECT_TRUE(holds(copy, values(3)));
  EXPECT_EQ(of(copy), nullptr);
}

TEST_F(GuardTest, ResultsHaveNoKeyAndViewsHaveIt) {
  const at::Tensor x = managed();
  const auto guarded = [](const at::Tensor& tensor) {
    return tensor.key_set().has(compat::kGuardKey);
  };
  EXPECT_TRUE(guarded(x.view({2, -1})));
  EXPECT_TRUE(guarded(x.detach()));
  EXPECT_TRUE(guarded(x.t()));
  EXPECT_FALSE(guarded(x + 1));
  EXPECT_FALSE(guarded(x.clone()));
}

TEST_F(GuardTest, TensorsOfPythonCodeThatImplementsAnOperatorAreGuarded) {
  const at::Tensor x = managed(1);
  offloaded(x);
  // As PyTorch excludes them while such code runs.
  const c10::impl::ExcludeDispatchKeyGuard in_python(
      c10::DispatchKeySet(c10::DispatchKeySet::FULL) -
      c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Python) -
      c10::DispatchKeySet(c10::DispatchKey::Python));
  EXPECT_TRUE(holds(x + 1, values(2)));
}

TEST_F(GuardTest, ACapturedStorageIsFetchedOutsideTheGraphAndStays) {
  const auto main = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(main);
  const at::Tensor x = managed(1);
  const at::Tensor y = managed(2);
  offloaded(x);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const at::Tensor result = x + y;
  graph.capture_end();
  EXPECT_TRUE(of(x)->kept());
  EXPECT_TRUE(of(y)->kept());
  EXPECT_EQ(of(x)->offload(), Bytes{});
  for (int i = 0; i < 2; ++i) {
    graph.replay();
    EXPECT_TRUE(holds(result, values(1) + values(2)));
  }
  x.add_(1);
  graph.replay();
  EXPECT_TRUE(holds(result, values(2) + values(2)));
}

TEST_F(GuardTest, AStorageThatEndsInAForkedChildTakesNoLock) {
  at::Tensor x = managed();
  offloaded(x);
  watch_for_forks();
  const auto count = [] {
    return ManagedStorages::instance().stats().classes[0].storages;
  };
  const auto before = count();
  const pid_t child = fork();
  if (child == 0) {
    x.reset();
    _exit(count() == before ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(count(), before);
}

/// A tracker may run Python, and so wait for a thread that uses the same storage.
TEST_F(GuardTest, NoLockIsHeldWhileMemoryIsAllocatedOrFreed) {
  const at::Tensor x = managed(1);
  const auto storage = offloaded(x);
  std::atomic<int> allocated{0};
  std::atomic<int> freed{0};
  const auto use = [&] {
    std::thread([&] {
      PinnedStorages pinned;
      pinned.add(x, /*writes=*/false);
    }).join();
  };
  const Tracker tracker([&](const ccc::TraceEntry& entry) {
    if (entry.action_ == ccc::TraceEntry::ALLOC && allocated++ == 0) use();
    if (entry.action_ == ccc::TraceEntry::FREE_COMPLETED && freed++ == 0) use();
  });
  EXPECT_TRUE(holds(x, values(1)));
  EXPECT_GT(allocated, 0);
  EXPECT_GT(freed, 0);  // of the second one's block
  freed = 0;
  storage->offload();
  EXPECT_GT(freed, 0);
  EXPECT_TRUE(holds(x, values(1)));
}

TEST_F(GuardTest, ThreadsUseAndOffloadTheSameStorages) {
  constexpr std::size_t kTensors = 6;
  constexpr std::size_t kRounds = 200;
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < kTensors; ++i)
    all.push_back(managed(static_cast<float>(i), 256));
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::thread offloads([&] {
    while (!done)
      ManagedStorages::instance().offload_all();
  });
  std::vector<std::thread> users;
  for (std::size_t user = 0; user < 3; ++user) {
    users.emplace_back([&, user] {
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      for (std::size_t round = 0; round < kRounds; ++round) {
        const std::size_t at = (user + round) % kTensors;
        if (!holds(all[at].mul(1), values(static_cast<float>(at), 256))) ++wrong;
      }
    });
  }
  for (auto& user : users)
    user.join();
  done = true;
  offloads.join();
  EXPECT_EQ(wrong, 0);
  for (const at::Tensor& each : all)
    EXPECT_FALSE(of(each)->pinned());
}

TEST_F(GuardTest, ThreadsThatManageTheSameStorageManageItOnce) {
  for (int round = 0; round < 50; ++round) {
    const at::Tensor x = on_device(values(1, 64));
    const at::Tensor same = x;
    const auto before = ManagedStorages::instance().stats().classes[0].storages;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        manage(x);
        PinnedStorages pinned;
        pinned.add(x, /*writes=*/false);
      });
    }
    for (auto& thread : threads)
      thread.join();
    EXPECT_EQ(ManagedStorages::instance().stats().classes[0].storages, before + 1);
    offloaded(x);
    EXPECT_TRUE(holds(same, values(1, 64)));
  }
}

TEST_F(GuardTest, StoragesThatEndWhileOthersAreOffloadedAreNotResurrected) {
  std::atomic<bool> done{false};
  std::thread offloads([&] {
    while (!done)
      ManagedStorages::reclaim(device(), Bytes{1ULL << 40U});
  });
  for (int round = 0; round < 400; ++round) {
    const at::Tensor x = managed(static_cast<float>(round), 64);
    if (round % 3 == 0) {
      EXPECT_TRUE(holds(x, values(static_cast<float>(round), 64)));
    }
  }
  done = true;
  offloads.join();
  EXPECT_EQ(device().heap().view().check(), "");
}

TEST_F(GuardTest, PressureOffloadsTheStorageWhoseNextUseIsFarthestAway) {
  ManagedStorages::instance().offload_all();
  std::vector<at::Tensor> all;
  for (int i = 0; i < 5; ++i)
    all.push_back(managed(static_cast<float>(i)));
  ManagedStorages::instance().end_step();
  const auto use = [&](std::initializer_list<int> order) {
    for (const int i : order)
      static_cast<void>(all[static_cast<std::size_t>(i)].sum());
  };
  use({0, 1, 2, 3, 4, 3, 2, 1, 0});
  ManagedStorages::instance().end_step();
  use({0, 1, 2, 3, 4});
  // From here the recorded uses are 3, 2, 1, 0, and 4 in the next step.
  for (const std::size_t expected : {4U, 0U, 1U, 2U, 3U}) {
    EXPECT_EQ(ManagedStorages::reclaim(device(), Bytes{1}), kSize);
    EXPECT_FALSE(of(all[expected])->on_device()) << expected;
  }
  EXPECT_EQ(ManagedStorages::reclaim(device(), Bytes{1}), Bytes{});
}

TEST_F(GuardTest, APinnedStorageKeepsItsPlaceInTheOrderOfOffloads) {
  ManagedStorages::instance().offload_all();
  std::vector<at::Tensor> all;
  for (int i = 0; i < 3; ++i)
    all.push_back(managed(static_cast<float>(i)));
  ManagedStorages::instance().end_step();
  for (int step = 0; step < 2; ++step) {
    if (step == 1) ManagedStorages::instance().end_step();
    for (const at::Tensor& each : all)
      static_cast<void>(each.sum());
  }
  const auto last = of(all[2]);
  last->pin(*all[2].storage().unsafeGetStorageImpl(), c10::cuda::getCurrentCUDAStream(), false);
  EXPECT_EQ(ManagedStorages::reclaim(device(), Bytes{1}), kSize);
  EXPECT_FALSE(of(all[1])->on_device());
  last->unpin();
  EXPECT_EQ(ManagedStorages::reclaim(device(), Bytes{1}), kSize);
  EXPECT_FALSE(last->on_device());
  EXPECT_TRUE(of(all[0])->on_device());
}

}  // namespace
}  // namespace spillway
