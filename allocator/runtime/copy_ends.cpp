// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/copy_ends.h"

#include <algorithm>

namespace spillway {
namespace {

constexpr std::size_t kMax = 256;  // copies per stream that are remembered for waits

}  // namespace

void CopyEnds::add(const driver::Span& copy) {
  Queue& queue = queues_[{copy.device, copy.stream}];
  queue.push_back(copy);
  if (queue.size() > kMax) queue.pop_front();
}

bool CopyEnds::copies(DeviceId device, std::uint64_t stream) const {
  return queues_.contains({device, stream});
}

const driver::Span* CopyEnds::last(const Queue& queue,
                                   const driver::Span& wait,
                                   bool of_its_storage) {
  const auto found = std::find_if(queue.rbegin(), queue.rend(), [&](const driver::Span& copy) {
    const bool meant =
        !of_its_storage || (copy.kind == driver::Span::Kind::kIn && copy.storage == wait.storage);
    return meant && copy.submitted <= wait.submitted && copy.begin < wait.end;
  });
  return found == queue.rend() ? nullptr : &*found;
}

std::uint64_t CopyEnds::over(const driver::Span& wait) const {
  const auto source = queues_.find({wait.device, wait.other});
  if (source == queues_.end()) return wait.end;
  const driver::Span* copy =
      wait.storage != 0 ? last(source->second, wait, /*of_its_storage=*/true) : nullptr;
  if (copy == nullptr) copy = last(source->second, wait, /*of_its_storage=*/false);
  return copy == nullptr ? wait.begin : std::clamp(copy->end, wait.begin, wait.end);
}

}  // namespace spillway
