// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <functional>
#include <mutex>
#include <vector>

namespace spillway::operators {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// Several works as one. Threads: as the parts.
class Together final : public c10d::Work {
 public:
  explicit Together(std::vector<WorkPtr> parts) : parts_(std::move(parts)) {}

  bool isCompleted() override {
    return std::all_of(
        parts_.begin(), parts_.end(), [](const WorkPtr& part) { return part->isCompleted(); });
  }

  [[nodiscard]] bool isSuccess() const override {
    return std::all_of(
        parts_.begin(), parts_.end(), [](const WorkPtr& part) { return part->isSuccess(); });
  }

  [[nodiscard]] std::exception_ptr exception() const override {
    for (const WorkPtr& part : parts_) {
      if (auto error = part->exception()) return error;
    }
    return nullptr;
  }

  bool wait(std::chrono::milliseconds timeout) override {
    bool done = true;
    for (const WorkPtr& part : parts_)
      done = part->wait(timeout) && done;
    return done;
  }

  void synchronize() override {
    for (const WorkPtr& part : parts_)
      part->synchronize();
  }

  void abort() override {
    for (const WorkPtr& part : parts_)
      part->abort();
  }

 private:
  std::vector<WorkPtr> parts_;
};

/// Work with a final part: operators on one device that the first wait queues. Every waiting stream
/// is ordered after them.
/// Threads: any.
class Finished final : public c10d::Work {
 public:
  Finished(WorkPtr work, c10::Device device, std::function<void()> last)
      : work_(std::move(work)), device_(device), last_(std::move(last)) {}

  bool isCompleted() override {
    if (!work_->isCompleted()) return false;
    if (work_->isSuccess()) finish();
    return true;
  }

  [[nodiscard]] bool isSuccess() const override { return work_->isSuccess(); }

  [[nodiscard]] std::exception_ptr exception() const override { return work_->exception(); }

  bool wait(std::chrono::milliseconds timeout) override {
    if (!work_->wait(timeout)) return false;
    finish();
    return true;
  }

  void synchronize() override { wait(kNoTimeout); }

  void blockCurrentStream() override { wait(kNoTimeout); }

  void abort() override { work_->abort(); }

 private:
  void finish() {
    const std::lock_guard lock(mutex_);
    const c10::DeviceGuard guard(device_);
    const auto stream = c10::cuda::getCurrentCUDAStream();
    if (last_) {
      work_->synchronize();
      last_();
      last_ = nullptr;
      ended_.record(stream);
    }
    ended_.block(stream);
  }

  WorkPtr work_;
  c10::Device device_;
  c10::Event ended_{c10::DeviceType::CUDA};
  std::mutex mutex_;
  std::function<void()> last_;  // empty after its call
};

}  // namespace spillway::operators
