// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/copy_parts.h"

#include <algorithm>

namespace spillway {

Status copy_at_once(const driver::Api& api,
                    CopyDirection direction,
                    const OneCopy& copy,
                    driver::Stream stream) {
  const CUdeviceptr at = copy.device.address();
  const std::size_t size = copy.size.count();
  return direction == CopyDirection::kOut
             ? SPILLWAY_CALL(api, MemcpyDtoHAsync, copy.host, at, size, stream.handle())
             : SPILLWAY_CALL(api, MemcpyHtoDAsync, at, copy.host, size, stream.handle());
}

void CopyParts::add(driver::DevicePtr device, std::byte* host, Bytes size) {
  for (Bytes done; done < size; done += kCopyPart) {
    device_.push_back((device + done).address());
    host_.push_back(driver::DevicePtr(host + done.count()).address());
    sizes_.push_back(std::min(kCopyPart, size - done).count());
  }
}

Status CopyParts::submit(const driver::Api& api, driver::Stream stream, bool& queued) {
  for (std::size_t from = 0; from < sizes_.size();) {
    std::size_t to = from + 1;
    std::size_t bytes = sizes_[from];
    while (api.MemcpyBatchAsync != nullptr && to < sizes_.size() &&
           bytes + sizes_[to] <= kCopyPart.count()) {
      bytes += sizes_[to];
      ++to;
    }
    SPILLWAY_RETURN_IF_ERROR(submit(api, stream, from, to));
    queued = true;
    from = to;
  }
  return {};
}

Status CopyParts::submit(const driver::Api& api,
                         driver::Stream stream,
                         std::size_t from,
                         std::size_t to) {
  const bool out = direction_ == CopyDirection::kOut;
  if (to - from > 1) {
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    std::size_t first = 0;
    return SPILLWAY_CALL(api,
                         MemcpyBatchAsync,
                         (out ? host_ : device_).data() + from,
                         (out ? device_ : host_).data() + from,
                         sizes_.data() + from,
                         to - from,
                         &attributes,
                         &first,
                         1,
                         stream.handle());
  }
  auto* const host = static_cast<std::byte*>(driver::DevicePtr(host_[from]).raw());
  return copy_at_once(
      api, direction_, {driver::DevicePtr(device_[from]), host, Bytes{sizes_[from]}}, stream);
}

}  // namespace spillway
