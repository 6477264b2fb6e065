// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Tags PyTorch's cuBLAS workspaces, one per handle and stream, with the role "workspace/cublas".
/// Each was allocated within the first matrix product on its stream. Memory under a tag of the
/// program keeps that tag.
/// Threads: safe.
void set_workspace_roles();

}  // namespace spillway
