// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Gives what PyTorch keeps as cuBLAS's workspaces, one for each handle and stream, the role
/// "workspace/cublas": each was allocated in the middle of whatever multiplied matrices first.
/// Memory under a program's own tag keeps that. Threads: safe.
void give_roles_to_workspaces();

}  // namespace spillway
