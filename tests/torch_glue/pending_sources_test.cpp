// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/pending_sources.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

namespace spillway {
namespace {

/// Storage on the host that reports when it is freed.
c10::Storage storage_that(std::function<void()> when_freed) {
  auto* const context = new std::function<void()>(std::move(when_freed));
  c10::DataPtr data(
      context,
      context,
      [](void* freed) {
        const auto* const callback = static_cast<std::function<void()>*>(freed);
        (*callback)();
        delete callback;
      },
      c10::Device(c10::kCPU));
  return {c10::Storage::use_byte_size_t{}, 8, std::move(data), nullptr, false};
}

TEST(PendingSourcesTest, WhatIsAboutToBeFreedIsStillHeld) {
  PendingSources& sources = PendingSources::instance();
  const c10::StorageImpl* second = nullptr;
  bool held_meanwhile = false;
  c10::Storage first = storage_that([&] { held_meanwhile = sources.holds(second); });
  c10::Storage other = storage_that([] {});
  second = other.unsafeGetStorageImpl();
  sources.hold(std::move(first), {});  // a fence that was never set has passed
  sources.hold(std::move(other), {});
  ASSERT_TRUE(sources.holds(second));
  EXPECT_TRUE(sources.poll());
  EXPECT_TRUE(held_meanwhile);
  EXPECT_FALSE(sources.holds(second));
  EXPECT_TRUE(sources.bytes().zero());
}

TEST(PendingSourcesTest, AStorageThatSomethingElseHasIsHeldByHimAloneAfterwards) {
  PendingSources& sources = PendingSources::instance();
  const c10::Storage kept = storage_that([] {});
  sources.hold(kept, {});
  EXPECT_TRUE(sources.poll());
  EXPECT_FALSE(sources.holds(kept.unsafeGetStorageImpl()));
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_FALSE(sources.poll());
}

}  // namespace
}  // namespace spillway
