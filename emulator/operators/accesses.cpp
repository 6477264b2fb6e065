// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/accesses.h"

#include "emulator/operators/runtime.h"

namespace spillway::operators {
namespace {

constexpr int64_t kMostRows = 256;  // beyond, the tensor's whole extent is reported as one range

struct Axis {
  int64_t size;
  int64_t stride;
};

bool has_bytes(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda() && tensor.has_storage() && tensor.numel() != 0;
}

/// Calls `report(at, bytes)` for each row of the tensor's bytes.
template <typename Report>
void for_each_row(const at::Tensor& tensor, Report&& report_bytes) {
  if (!has_bytes(tensor)) return;
  c10::SmallVector<Axis, 6> axes;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1 && tensor.stride(i) > 0)
      axes.push_back({tensor.size(i), tensor.stride(i)});
  }
  std::sort(axes.begin(), axes.end(), [](Axis a, Axis b) { return a.stride < b.stride; });

  int64_t run = 1;  // elements without a gap, from the innermost axis outwards
  size_t inner = 0;
  while (inner < axes.size() && axes[inner].stride <= run) {
    run = std::max(run, axes[inner].stride * (axes[inner].size - 1) + run);
    ++inner;
  }
  int64_t rows = 1;
  int64_t extent = run;
  for (size_t i = inner; i < axes.size(); ++i) {
    rows = std::min(kMostRows + 1, rows * std::min(axes[i].size, kMostRows + 1));
    extent += axes[i].stride * (axes[i].size - 1);
  }

  const auto* base = static_cast<const std::byte*>(tensor.const_data_ptr());
  const int64_t item = static_cast<int64_t>(tensor.element_size());
  const auto report = [&](int64_t offset, int64_t length) {
    report_bytes(base + offset * item, static_cast<size_t>(length * item));
  };
  if (rows > kMostRows) {
    report(0, extent);
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    int64_t offset = 0;
    int64_t rest = row;
    for (size_t i = inner; i < axes.size(); ++i) {
      offset += (rest % axes[i].size) * axes[i].stride;
      rest /= axes[i].size;
    }
    report(offset, run);
  }
}

}  // namespace

void report_access(CUstream stream, const at::Tensor& tensor, bool write, const char* name) {
  for_each_row(tensor, [&](const void* at, size_t bytes) {
    emulated_runtime().access(stream, at, bytes, write ? 1 : 0, name);
  });
}

void record_access(std::vector<spillway_emulator_access_record>& records,
                   const at::Tensor& tensor,
                   bool write) {
  for_each_row(tensor, [&](const void* at, size_t bytes) {
    records.push_back({at, bytes, write ? 1 : 0});
  });
}

Extent extent_of(const at::Tensor& tensor) {
  if (!has_bytes(tensor)) return {};
  int64_t last = 0;  // element
  for (int64_t i = 0; i < tensor.dim(); ++i)
    last += (tensor.size(i) - 1) * tensor.stride(i);
  return {tensor.const_data_ptr(), static_cast<size_t>(last + 1) * tensor.dtype().itemsize()};
}

}  // namespace spillway::operators
