// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/driver/timeline.h"
#include "allocator/heap/heap.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spillway {

using namespace literals;

/// An entry of a driver table whose n-th call fails, once. One fault per entry at a time.
template <auto kEntry>
class Fault;

template <typename... Args, CUresult (*driver::Api::*kEntry)(Args...)>
class Fault<kEntry> {
 public:
  Fault(driver::Api& table, int nth, CUresult error) {
    next_ = driver::api().value()->*kEntry;
    left_ = nth;
    error_ = error;
    table.*kEntry = call;
  }

 private:
  static CUresult call(Args... args) { return --left_ == 0 ? error_ : next_(args...); }

  inline static CUresult (*next_)(Args...) = nullptr;
  inline static int left_ = 0;
  inline static CUresult error_ = CUDA_SUCCESS;
};

/// A heap on the emulated device, over a driver table of its own in which a test may replace
/// entries.
class HeapTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto api = driver::api();
    ASSERT_TRUE(api.ok()) << api.status().message();
    table_ = *api.value();
    stuck_table_ = table_;
    stuck_table_.EventQuery = [](CUevent) {
      return CUDA_ERROR_NOT_READY;
    };
    device_ = driver::Device::open(table_, DeviceId{0}).value();
    current_ = std::make_unique<driver::CurrentDevice>(table_, device_.context);
    main_ = make_stream();
    side_ = make_stream();
    make_heap({});
  }

  void TearDown() override {
    if (heap_ == nullptr) return;  // SetUp has failed with a message
    EXPECT_EQ(heap_->view().check(), "");
    for (const CUstream stream : streams_)
      table_.StreamSynchronize(stream);
    for (const driver::DevicePtr at : allocated_)
      heap_->free(at);
    for (const CUstream stream : streams_)
      table_.StreamSynchronize(stream);
    heap_.reset();
    timelines_.clear();
    for (const CUstream stream : streams_)
      table_.StreamDestroy(stream);
  }

  /// In place of the present heap, whose blocks are freed.
  void make_heap(const HeapOptions& options) {
    for (const driver::DevicePtr at : std::exchange(allocated_, {}))
      heap_->free(at);
    auto made = Heap::create(device_, options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    heap_ = std::move(made).value();
  }

  driver::Stream make_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(table_.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    streams_.push_back(stream);
    return driver::Stream(stream);
  }

  /// A block that lives until the test frees it with `free`, or to the end of the test.
  driver::DevicePtr allocate(Bytes size) { return allocate(size, main_); }

  driver::DevicePtr allocate(Bytes size, driver::Stream stream, TagId tag = TagId::kUntagged) {
    const auto block = heap_->allocate(size, stream, tag);
    EXPECT_TRUE(block.ok()) << block.status().message();
    if (!block.ok()) return {};
    allocated_.push_back(block.value());
    return block.value();
  }

  void free(driver::DevicePtr at) {
    std::erase(allocated_, at);
    heap_->free(at);
  }

  /// A point on `side_` that has passed.
  driver::Fence passed_fence() { return timeline(table_).mark().value(); }

  /// A point on `side_` that no query ever sees to pass; a wait for it on host or device still
  /// ends.
  driver::Fence stuck_fence() { return timeline(stuck_table_).mark().value(); }

  /// Frees a block that `side_` still uses, up to the returned stuck_fence().
  driver::Fence free_in_use(driver::DevicePtr at) {
    const driver::Fence fence = stuck_fence();
    heap_->add_fence(at, fence);
    free(at);
    return fence;
  }

  driver::Timeline& timeline(const driver::Api& table) {
    const driver::Device device{&table, device_.id, device_.context};
    timelines_.push_back(std::make_unique<driver::Timeline>(device, side_));
    return *timelines_.back();
  }

  driver::Api table_;
  driver::Api stuck_table_;
  driver::Device device_{};
  std::unique_ptr<driver::CurrentDevice> current_;
  std::vector<CUstream> streams_;
  driver::Stream main_{CUstream{nullptr}};
  driver::Stream side_{CUstream{nullptr}};
  std::vector<std::unique_ptr<driver::Timeline>> timelines_;
  std::vector<driver::DevicePtr> allocated_;
  std::unique_ptr<Heap> heap_;
};

}  // namespace spillway
