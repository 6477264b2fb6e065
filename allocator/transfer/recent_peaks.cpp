// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/recent_peaks.h"

#include <algorithm>

namespace spillway {

void RecentPeaks::add(std::uint64_t shape, Bytes peak, bool estimated) {
  const bool known = std::any_of(
      steps_.begin(), steps_.end(), [shape](const Step& step) { return step.shape == shape; });
  std::erase_if(steps_,
                [shape](const Step& step) { return step.shape == shape && step.provisional; });
  steps_.push_back({shape, peak, !known || estimated});
  if (steps_.size() > kSteps) steps_.pop_front();
}

Bytes RecentPeaks::largest() const {
  Bytes largest;
  for (const Step& step : steps_)
    largest = std::max(largest, step.peak);
  return largest;
}

bool RecentPeaks::vary() const {
  return std::any_of(steps_.begin(), steps_.end(), [this](const Step& step) {
    return step.shape != steps_.front().shape;
  });
}

}  // namespace spillway
