// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What libspillway_libtorch.so gives to programs.
#define SPILLWAY_TORCH_API __attribute__((visibility("default")))
