// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::interpose {

/// In a program with LibTorch and without Python that the environment asks to offload
/// (SPILLWAY_BUDGET, SPILLWAY_OFFLOAD_RATIO, SPILLWAY_TAG_RATIO, SPILLWAY_RECOMPUTE): loads
/// libspillway_libtorch.so, which sets it up, once. To be called when the program first asks which
/// GPUs there are: LibTorch has no allocator yet. False where that cannot be done, which one line
/// on stderr has said: a program that needs it to fit must not go on. Threads: safe; not while the
/// loader's lock is held. In a program with Python that PyTorch has not started the package in: one
/// line on stderr, true.
bool set_up_job();

/// Whether the environment has a setting, and not an empty one.
bool given(const char* setting);

/// The setting that asks for the package's work in this process: SPILLWAY_BUDGET,
/// SPILLWAY_OFFLOAD_RATIO, SPILLWAY_TAG_RATIO, SPILLWAY_RECOMPUTE or SPILLWAY_REPORT; null where
/// none does.
const char* asked_for();

/// PyTorch has started the package in this process.
void package_started();

}  // namespace spillway::interpose
