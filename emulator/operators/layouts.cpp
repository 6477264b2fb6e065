// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/layouts.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>

namespace spillway::operators {
namespace {

using at::native::NestedTensorImpl;

at::SparseTensorImpl* coordinates(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl* compressed(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

NestedTensorImpl* nested(const at::Tensor& tensor) {
  return static_cast<NestedTensorImpl*>(tensor.unsafeGetTensorImpl());
}

void set_parts(at::SparseTensorImpl* to, const at::Tensor& like, const Parts& parts) {
  to->raw_resize_(like.sparse_dim(), like.dense_dim(), like.sizes());
  to->set_indices_and_values_unsafe(parts[0], parts[1]);
  to->set_coalesced(coordinates(like)->coalesced());
}

void set_parts(at::SparseCsrTensorImpl* to, const at::Tensor& like, const Parts& parts) {
  to->set_member_tensors(parts[0], parts[1], parts[2], like.sizes());
}

}  // namespace

Parts parts_of(const at::Tensor& tensor, const char* name) {
  if (tensor.is_nested()) return {nested(tensor)->get_unsafe_storage_as_tensor()};
  if (tensor.is_sparse()) return {coordinates(tensor)->indices(), coordinates(tensor)->values()};
  TORCH_CHECK_NOT_IMPLEMENTED(at::sparse_csr::is_sparse_compressed(tensor),
                              "the emulated GPU runs ",
                              name,
                              " on strided, sparse and nested tensors, not on ",
                              tensor.layout(),
                              " ones. Run this part on the CPU.");
  const auto* impl = compressed(tensor);
  return {impl->compressed_indices(), impl->plain_indices(), impl->values()};
}

at::Tensor assemble(const at::Tensor& like, const Parts& parts) {
  using c10::DispatchKey;
  const bool device = parts.back().is_cuda();
  if (like.is_nested()) {
    const auto* impl = nested(like);
    return at::detail::make_tensor<NestedTensorImpl>(parts[0],
                                                     impl->get_nested_sizes(),
                                                     impl->get_nested_strides(),
                                                     impl->get_storage_offsets());
  }
  if (like.is_sparse()) {
    const c10::DispatchKeySet keys(device ? DispatchKey::SparseCUDA : DispatchKey::SparseCPU);
    at::Tensor made = at::detail::make_tensor<at::SparseTensorImpl>(keys, like.dtype());
    set_parts(coordinates(made), like, parts);
    return made;
  }
  const c10::DispatchKeySet keys(device ? DispatchKey::SparseCsrCUDA : DispatchKey::SparseCsrCPU);
  at::Tensor made = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      keys, parts.back().device(), like.layout(), like.dtype());
  set_parts(compressed(made), like, parts);
  return made;
}

void reassemble(const at::Tensor& tensor, const at::Tensor& like, const Parts& parts) {
  if (tensor.is_sparse()) {
    set_parts(coordinates(tensor), like, parts);
  } else {
    set_parts(compressed(tensor), like, parts);
  }
}

}  // namespace spillway::operators
