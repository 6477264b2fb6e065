// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace spillway::operators {

/// The cost of an operator on a GPU: memory traffic in bytes, and floating-point operations.
struct Cost {
  enum class Arithmetic : uint8_t { kHalf, kTf32, kSingle, kDouble, kFp8, kInt8 };
  enum class Kernel : uint8_t { kOther, kProduct, kAttention, kAttentionBackward };

  uint64_t bytes = 0;
  double flops = 0;
  Arithmetic arithmetic = Arithmetic::kHalf;
  Kernel kernel = Kernel::kOther;
};

/// The cost of one call: its traffic (traffic.h), and its arithmetic. A multiplication and an
/// addition count as two operations, of 8 bits as of 16. Matrix products, convolutions and
/// attention have FLOPs; all other operators count as memory-bound. Single precision is TF32 if
/// PyTorch allows it: in products by torch.backends.cuda.matmul, in convolutions by
/// torch.backends.cudnn.
Cost cost_of(const char* name,
             c10::ArrayRef<c10::IValue> arguments,
             c10::ArrayRef<c10::IValue> results);

/// The bytes that one call reads and writes in its device's memory: the memory that arguments and
/// results cover, counted once however often they are passed or broadcast. Filled memory is not
/// read. Of indexed memory, only the selected elements count.
uint64_t traffic_of(const char* name,
                    c10::ArrayRef<c10::IValue> arguments,
                    c10::ArrayRef<c10::IValue> results);

}  // namespace spillway::operators
