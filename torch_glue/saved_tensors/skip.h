// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/runtime/stats.h"

#include <ATen/core/Tensor.h>

#include <optional>

namespace spillway {

/// Why a saved tensor cannot be moved, nothing where it can. Cheap tests first.
std::optional<SkipReason> why_not_movable(const at::Tensor& tensor, Bytes min_bytes);

/// Why nothing can be moved from this stream now, although it could at other times: asks the
/// driver.
std::optional<SkipReason> capture_skip_reason(driver::Stream stream);

/// Whether it stands for other tensors, as those of Python classes and of functorch do.
bool is_wrapper(const at::Tensor& tensor);

/// Whether it is a parameter or a view of one.
bool is_of_parameter(const at::Tensor& tensor);

/// Whether it is a parameter in the type of autocast, or a view of one, whose cache holds it until
/// the outermost autocast ends.
bool is_in_autocast_cache(const at::Tensor& tensor);

/// Counts a tensor that is not moved: once per storage and step. Threads: safe.
void count_skip(TagId tag, SkipReason reason, const at::Tensor& tensor);

/// Counts a tensor that could be moved and stays, because its region moves nothing: as
/// count_skip().
void count_staying(TagId tag, const at::Tensor& tensor);

/// A step has ended. What is remembered of its storages would go at the next count anyway; now
/// their memory can be used again at once, and is in the processor's caches still. Threads: safe.
void forget_counted();

}  // namespace spillway
