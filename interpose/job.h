// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::interpose {

/// For a program with LibTorch and without Python whose environment requests offloading
/// (SPILLWAY_BUDGET, SPILLWAY_OFFLOAD_RATIO, SPILLWAY_TAG_RATIO, SPILLWAY_RECOMPUTE). Loads
/// libspillway_libtorch.so, which configures the process, once. Call it when the program first
/// queries the GPUs: LibTorch has no allocator yet. Returns false after one line on stderr if that
/// fails; a program that needs Spillway to fit must not continue. In a program with Python in which
/// PyTorch has not started the package: one line on stderr, true.
/// Threads: safe; not while the loader's lock is held.
bool set_up_job();

/// Whether the environment has a nonempty value for the setting.
bool given(const char* setting);

/// The setting that requests the package in this process: SPILLWAY_BUDGET, SPILLWAY_OFFLOAD_RATIO,
/// SPILLWAY_TAG_RATIO, SPILLWAY_RECOMPUTE or SPILLWAY_REPORT; null if none does.
const char* asked_for();

/// Reports that PyTorch has started the package in this process.
void package_started();

}  // namespace spillway::interpose
