// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"

#include <cstddef>
#include <string>

namespace spillway {

/// No node is known, or none is wanted.
constexpr int kNoNode = -1;

/// Of the kernel's transparent huge pages.
constexpr Bytes kHugePage{2U << 20U};

/// Host memory from the system that is there: every page has been given memory, but for a dry
/// run's. Ownership: by hand, each with one unmap_host_pages.
struct HostPages {
  std::byte* at = nullptr;
  Bytes size;
  bool huge = false;     // in huge pages that the machine keeps for programs that ask (hugetlbfs)
  bool advised = false;  // the kernel was asked for transparent huge pages, and gives them
  bool on_node = false;  // the kernel was told which node is preferred
};

/// Maps `size` bytes on `node` and touches them, large ones from several threads: as many as this
/// process may run on, sixteen at most. Forked children do not have them. Huge pages and the node
/// are wishes; what came of them is in the result. In a dry run (driver::moves_no_bytes) nothing
/// is touched, nothing wished for, and more can be mapped than the machine has.
/// Requires: `size` is a multiple of the page. Errors: kOutOfHostMemory; nothing is mapped then.
Result<HostPages> map_host_pages(Bytes size, int node);
void unmap_host_pages(const HostPages& pages);

/// The NUMA node of host memory that is nearest to the device, kNoNode where nothing knows: asked
/// of the driver, then of the machine. `sysfs`: where the machine describes itself.
int host_node_of(const driver::Device& device, const std::string& sysfs = "/sys");

}  // namespace spillway
