// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/copies.h"

#include "emulator/operators/layouts.h"
#include "emulator/operators/runtime.h"
#include "emulator/operators/shapes/assumed_values.h"
#include "emulator/operators/shapes/host_reads.h"
#include "emulator/operators/shapes/shape_rules.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Copy.h>
#include <c10/cuda/CUDAStream.h>

namespace spillway::operators {
namespace {

/// Whether one memcpy suffices: same type, same layout, no gaps.
bool is_memcpy(const at::Tensor& to, const at::Tensor& from) {
  return to.dtype() == from.dtype() && to.is_conj() == from.is_conj() &&
         to.is_neg() == from.is_neg() && to.sizes() == from.sizes() &&
         ((to.is_contiguous() && from.is_contiguous()) ||
          (to.strides() == from.strides() && to.is_non_overlapping_and_dense()));
}

/// While a stream is captured the operators compute on shadows, which PyTorch's memcpy would
/// ignore.
bool is_captured(c10::DeviceIndex device) {
  return emulated_runtime().capturing(c10::cuda::getCurrentCUDAStream(device).stream()) != 0;
}

/// A copy to another device that also changes layout or type: both ends work on their own stream,
/// and the bytes between them go by PyTorch's own device-to-device copy, which orders the two
/// streams.
void copy_between_devices(at::Tensor to, const at::Tensor& from, bool non_blocking) {
  const at::Tensor sent =
      from.to(to.scalar_type()).expand_as(to).contiguous().resolve_conj().resolve_neg();
  const bool direct = to.is_contiguous() && !to.is_conj() && !to.is_neg();
  at::Tensor received = direct ? to : at::empty(to.sizes(), to.options());
  at::native::copy_(received, sent, non_blocking);
  if (!direct) to.copy_(received);
}

}  // namespace

void CopyKernel::operator()(const c10::OperatorHandle& op,
                            c10::DispatchKeySet keys,
                            c10::Stack* stack) const {
  const size_t first = stack->size() - 3;
  at::Tensor to = (*stack)[first].toTensor();
  const at::Tensor from = (*stack)[first + 1].toTensor();
  const bool non_blocking = (*stack)[first + 2].toBool();
  const bool on_devices = to.is_cuda() && from.is_cuda();
  const bool same_device = on_devices && to.device() == from.device();
  if (on_devices && is_strided(to) && is_strided(from) &&
      (!is_memcpy(to, from) || (same_device && is_captured(to.device().index())))) {
    if (same_device) {
      emulated_(op, keys, stack);
      return;
    }
    copy_between_devices(to, from, non_blocking);
  } else {
    at::native::copy_(to, from, non_blocking);
    if (same_device && emulated_runtime().shape_only && is_strided(to) && is_strided(from) &&
        to.nbytes() <= kSmallBytes && is_known(from)) {
      note_filled(to);
    }
    if (emulated_runtime().shape_only && to.is_cpu() && to.numel() == 1 && !non_blocking) {
      count_read(to);
    }
  }
  stack->resize(first);
  stack->emplace_back(std::move(to));
}

void ForeachCopyKernel::operator()(const c10::OperatorHandle&,
                                   c10::DispatchKeySet,
                                   c10::Stack* stack) const {
  const size_t first = stack->size() - 3;
  const auto to = (*stack)[first].toTensorVector();
  const auto from = (*stack)[first + 1].toTensorVector();
  const bool non_blocking = (*stack)[first + 2].toBool();
  TORCH_CHECK(to.size() == from.size(),
              "_foreach_copy_: ",
              to.size(),
              " destinations for ",
              from.size(),
              " sources. Pass one for each.");
  const at::AutoDispatchBelowADInplaceOrView below;
  for (size_t i = 0; i < to.size(); ++i)
    to[i].copy_(from[i], non_blocking);
  stack->resize(first);
}

}  // namespace spillway::operators
