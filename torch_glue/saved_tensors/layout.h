// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_storage/byte_ranges.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

namespace spillway {

/// The layout of a tensor on its storage, by which it can be recreated over the same bytes
/// elsewhere.
class Layout {
 public:
  Layout() = default;

  /// The layout of the tensor.
  explicit Layout(const at::Tensor& tensor)
      : sizes_(tensor.sizes()),
        strides_(tensor.strides()),
        offset_(tensor.storage_offset()),
        keys_(tensor.key_set()),
        dtype_(tensor.dtype()),
        bytes_(covered(tensor)) {}

  [[nodiscard]] at::IntArrayRef sizes() const { return sizes_; }

  /// The bytes of the storage from the tensor's first byte to its last; empty for a tensor without
  /// elements.
  [[nodiscard]] const ByteRange& bytes() const { return bytes_; }

  /// The tensor, without a graph, sharing `version`, over `storage`, which has the original bytes
  /// from `begin` on.
  /// Requires: `begin` is a multiple of the size of an element.
  [[nodiscard]] at::Tensor over(c10::Storage storage,
                                const c10::VariableVersion& version,
                                Bytes begin = Bytes{}) const {
    const auto elements = static_cast<std::int64_t>(begin.count() / dtype_.itemsize());
    auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), keys_, dtype_);
    impl->set_sizes_and_strides(sizes_, strides_, offset_ - elements);
    impl->set_version_counter(version);
    return at::Tensor(std::move(impl));
  }

 private:
  static ByteRange covered(const at::Tensor& tensor) {
    if (tensor.numel() == 0) return {};
    const std::size_t size = tensor.itemsize();
    const Bytes begin{static_cast<std::size_t>(tensor.storage_offset()) * size};
    const Bytes end{at::detail::computeStorageNbytes(
        tensor.sizes(), tensor.strides(), size, static_cast<std::size_t>(tensor.storage_offset()))};
    // A storage may have shrunk under its tensors.
    const Bytes all{tensor.storage().nbytes()};
    return end <= all ? ByteRange{begin, end} : ByteRange{Bytes{}, all};
  }

  c10::DimVector sizes_;
  c10::DimVector strides_;
  std::int64_t offset_ = 0;
  c10::DispatchKeySet keys_;  // conjugate and negative views are keys
  caffe2::TypeMeta dtype_;
  ByteRange bytes_;
};

}  // namespace spillway
