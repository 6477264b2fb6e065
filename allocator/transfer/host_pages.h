// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"

#include <cstddef>
#include <string>

namespace spillway {

/// No node is known or requested.
constexpr int kNoNode = -1;

/// Size of the kernel's transparent huge pages.
constexpr Bytes kHugePage{2U << 20U};

/// Mapped host memory whose pages are all populated, except in a dry run.
/// Ownership: manual; call unmap_host_pages once for each.
struct HostPages {
  std::byte* at = nullptr;
  Bytes size;
  bool huge = false;     // in preallocated huge pages (hugetlbfs)
  bool advised = false;  // advised for transparent huge pages, which the kernel supports
  bool on_node = false;  // the preferred node was set
};

/// Maps `size` bytes on `node` and touches them. Large mappings use several threads: as many as
/// this process may run on, at most sixteen. Forked children do not inherit them. Huge pages and
/// the node are preferences; the result reports the outcome. In a dry run (driver::moves_no_bytes)
/// nothing is touched and there are no preferences. More can then be mapped than the machine has.
/// Requires: `size` is a multiple of the page size.
/// Errors: kOutOfHostMemory; nothing is mapped then.
Result<HostPages> map_host_pages(Bytes size, int node);
void unmap_host_pages(const HostPages& pages);

/// The NUMA node of host memory nearest to the device; kNoNode if it is unknown. Queries the
/// driver, then the machine. `sysfs`: root of the machine's description.
int host_node_of(const driver::Device& device, const std::string& sysfs = "/sys");

}  // namespace spillway
