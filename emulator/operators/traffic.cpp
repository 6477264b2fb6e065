// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/traffic.h"

#include "emulator/operators/layouts.h"
#include "emulator/operators/lists.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace spillway::operators {
namespace {

using Values = c10::ArrayRef<c10::IValue>;

constexpr std::string_view kFilling[] = {"aten::zero_",
                                         "aten::fill_",
                                         "aten::normal_",
                                         "aten::uniform_",
                                         "aten::random_",
                                         "aten::exponential_"};

/// Their first argument is read at indices.
constexpr std::string_view kPicking[] = {
    "aten::index", "aten::index_select", "aten::gather", "aten::take", "aten::embedding"};

/// Their first argument is written at indices, in place.
constexpr std::string_view kPutting[] = {"aten::index_put_",
                                         "aten::_index_put_impl_",
                                         "aten::index_add_",
                                         "aten::index_copy_",
                                         "aten::scatter_",
                                         "aten::scatter_add_"};

template <size_t kCount>
bool contains(const std::string_view (&names)[kCount], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// From the first to the last byte, or fewer where there are gaps.
uint64_t extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.has_storage()) return tensor.nbytes();
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return std::min<uint64_t>(tensor.nbytes(), (static_cast<uint64_t>(last) + 1) * tensor.itemsize());
}

/// Tensors, each once.
class Sum {
 public:
  explicit Sum(const char* name) : name_(name) {}

  void add(Values values) {
    for (const c10::IValue& value : values) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        for_each_part(tensor, name_, [&](const at::Tensor& part) {
          if (part.defined() && part.is_cuda()) add(part);
        });
      });
    }
  }

  [[nodiscard]] uint64_t bytes() const { return bytes_; }

  [[nodiscard]] uint64_t largest() const { return largest_; }

 private:
  struct Seen {
    const void* at;
    uint64_t bytes;
    bool operator==(const Seen&) const = default;
  };

  void add(const at::Tensor& tensor) {
    const uint64_t bytes = extent(tensor);
    const Seen seen{tensor.has_storage() ? tensor.const_data_ptr() : nullptr, bytes};
    if (seen.at != nullptr && std::find(seen_.begin(), seen_.end(), seen) != seen_.end()) return;
    seen_.push_back(seen);
    bytes_ += bytes;
    largest_ = std::max(largest_, bytes);
  }

  const char* name_;
  std::vector<Seen> seen_;
  uint64_t bytes_ = 0;
  uint64_t largest_ = 0;
};

}  // namespace

uint64_t traffic_of(const char* name, Values arguments, Values results) {
  const std::string_view full = name;
  const std::string_view base = full.substr(0, full.find('.'));
  Sum read(name);
  Sum written(name);
  written.add(results);
  if (contains(kFilling, base)) return written.bytes();
  if (contains(kPicking, base)) {
    read.add(arguments.slice(1));
    return read.bytes() + 2 * written.bytes();
  }
  if (contains(kPutting, base)) {
    read.add(arguments.slice(1));
    return read.bytes() + 2 * read.largest();
  }
  read.add(arguments);
  return read.bytes() + written.bytes();
}

}  // namespace spillway::operators
