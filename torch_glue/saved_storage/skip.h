// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/runtime/stats.h"

#include <ATen/core/Tensor.h>

#include <optional>

namespace spillway {

/// Why a saved tensor cannot be offloaded; none if it can. Cheap tests come first.
std::optional<SkipReason> why_not_movable(const at::Tensor& tensor, Bytes min_bytes);

/// Why no tensor can be offloaded from this stream now, although it could at other times; queries
/// the driver.
std::optional<SkipReason> capture_skip_reason(driver::Stream stream);

/// Whether it wraps other tensors, as tensors of Python classes and of functorch do.
bool is_wrapper(const at::Tensor& tensor);

/// Whether it is a parameter or a view of one.
bool is_of_parameter(const at::Tensor& tensor);

/// Whether autocast is casting `source`, and keeps the result until the outermost autocast ends. To
/// be called within the cast.
bool autocast_keeps_cast(const at::Tensor& source, at::ScalarType to);

/// Whether it is a parameter cast by autocast, or a view of one, and autocast still keeps it.
bool is_in_autocast_cache(const at::Tensor& tensor);

/// Counts a tensor that is not offloaded, once per storage and step. Threads: safe.
void count_skip(TagId tag, SkipReason reason, const at::Tensor& tensor);

/// Counts a tensor that could be offloaded but stays, because its region offloads nothing; as
/// count_skip().
void count_staying(TagId tag, const at::Tensor& tensor);

/// Drops the counted storages of a step at its end. The next count would drop them anyway; now
/// their memory can be reused while it is in the processor's caches.
/// Threads: safe.
void forget_counted();

}  // namespace spillway
