// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace spillway {

/// How a tensor lies on its storage: what it takes to make it again over the same bytes elsewhere.
class Layout {
 public:
  Layout() = default;

  explicit Layout(const at::Tensor& tensor)
      : sizes_(tensor.sizes()),
        strides_(tensor.strides()),
        offset_(tensor.storage_offset()),
        keys_(tensor.key_set()),
        dtype_(tensor.dtype()) {}

  [[nodiscard]] at::IntArrayRef sizes() const { return sizes_; }

  /// The tensor over `storage`, without a graph, that shares `version`.
  [[nodiscard]] at::Tensor over(c10::Storage storage, const c10::VariableVersion& version) const {
    auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), keys_, dtype_);
    impl->set_sizes_and_strides(sizes_, strides_, offset_);
    impl->set_version_counter(version);
    return at::Tensor(std::move(impl));
  }

 private:
  c10::DimVector sizes_;
  c10::DimVector strides_;
  std::int64_t offset_ = 0;
  c10::DispatchKeySet keys_;  // conjugate and negative views are keys
  caffe2::TypeMeta dtype_;
};

}  // namespace spillway
