// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Exports a symbol of libspillway_libtorch.so.
#define SPILLWAY_TORCH_API __attribute__((visibility("default")))
