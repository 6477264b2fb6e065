// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_pages.h"

#include "allocator/base/process.h"
#include "allocator/base/thread.h"
#include "allocator/driver/api.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// Minimum bytes per thread: less is touched before a thread has started.
constexpr Bytes kPerThread = 64_MiB;
constexpr std::uint64_t kThreads = 16;

// Since Linux 5.14, so not in every libc's headers.
constexpr int kPopulateWrite = 23;
constexpr int kPreferredNode = 1;

Status refused(Bytes size, int error) {
  return SPILLWAY_ERROR(Code::kOutOfHostMemory,
                        readable(size) + " of host memory cannot be allocated (" +
                            std::generic_category().message(error) +
                            (error == ENOMEM ? address_space_limit() : std::string()) +
                            "). Offload less, or free host memory.");
}

bool gives_transparent_huge_pages() {
  static const bool gives = [] {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string line;
    return std::getline(file, line) && line.find("[never]") == std::string::npos;
  }();
  return gives;
}

/// Begins at a multiple of a huge page, if there is room for one.
std::byte* map_aligned(Bytes size, int flags) {
  const Bytes slack = size < kHugePage ? Bytes{} : kHugePage;
  const std::size_t room = (size + slack).count();
  void* mapped =
      mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapped);
  if (slack.zero()) return first;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(first) % kHugePage.count();
  const std::size_t before = past == 0 ? 0 : kHugePage.count() - past;
  if (before > 0) munmap(first, before);
  munmap(first + before + size.count(), slack.count() - before);
  return first + before;
}

/// Populates the range. On a kernel that cannot do that in one call, writes to its pages one by
/// one, except for huge ones, whose absence would raise a signal. Returns errno.
int touch(std::byte* at, std::size_t size, bool huge) {
  if (madvise(at, size, kPopulateWrite) == 0) return 0;
  if (errno != EINVAL || huge) return errno;
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t each = 0; each < size; each += page)
    *static_cast<volatile std::byte*>(at + each) = std::byte{};
  return 0;
}

std::uint64_t threads_for(Bytes size) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const auto processors = known ? static_cast<std::uint64_t>(CPU_COUNT(&allowed)) : 1;
  return std::clamp<std::uint64_t>(
      size.count() / kPerThread.count(), 1, std::min(processors, kThreads));
}

int touch_all(const HostPages& pages) {
  const Bytes part = Bytes{pages.size.count() / threads_for(pages.size)}.rounded_up(kHugePage);
  std::atomic<int> error{0};
  const auto touch_part = [&](Bytes from) {
    const Bytes size = std::min(part, pages.size - from);
    if (const int failed = touch(pages.at + from.count(), size.count(), pages.huge); failed != 0)
      error = failed;
  };
  std::vector<std::thread> threads;
  for (Bytes from = part; from < pages.size; from += part) {
    threads.push_back(start_thread([&touch_part, from] { touch_part(from); }));
    if (!threads.back().joinable()) {
      threads.pop_back();
      touch_part(from);
    }
  }
  touch_part(Bytes{});
  for (std::thread& thread : threads)
    thread.join();
  return error;
}

bool prefer_node(const HostPages& pages, int node) {
  constexpr int kMax = 1023;
  if (node < 0 || node > kMax) return false;
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  unsigned long mask[(kMax + 1) / kBits] = {};
  const auto bit = static_cast<std::size_t>(node);
  mask[bit / kBits] = 1UL << (bit % kBits);
  return syscall(SYS_mbind, pages.at, pages.size.count(), kPreferredNode, mask, kMax + 1UL, 0UL) ==
         0;
}

/// Touches mapped memory; unmaps it on failure. Returns errno.
int furnish(HostPages& pages, int node) {
  // A forked child that writes to a pinned page would move the parent's page away from the device.
  madvise(pages.at, pages.size.count(), MADV_DONTFORK);
  pages.on_node = prefer_node(pages, node);
  const int error = touch_all(pages);
  if (error != 0) unmap_host_pages(pages);
  return error;
}

int node_in(const std::string& path) {
  std::ifstream file(path);
  int number = kNoNode;
  return file >> number ? number : kNoNode;
}

}  // namespace

Result<HostPages> map_host_pages(Bytes size, int node) {
  if (driver::moves_no_bytes()) {
    // A job of any size can be tried on a machine of any size: memory without copies is not
    // populated.
    const HostPages untouched{map_aligned(size, MAP_NORESERVE), size, false, false, false};
    if (untouched.at == nullptr) return refused(size, errno);
    madvise(untouched.at, size.count(), MADV_NOHUGEPAGE);
    madvise(untouched.at, size.count(), MADV_DONTFORK);
    return untouched;
  }
  if (size.rounded_down(kHugePage) == size) {
    void* mapped = mmap(nullptr,
                        size.count(),
                        PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT),
                        -1,
                        0);
    HostPages huge{static_cast<std::byte*>(mapped), size, true, false, false};
    if (mapped != MAP_FAILED && furnish(huge, node) == 0) return huge;
  }
  HostPages pages{map_aligned(size, 0), size, false, false, false};
  if (pages.at == nullptr) return refused(size, errno);
  pages.advised = size >= kHugePage && gives_transparent_huge_pages() &&
                  madvise(pages.at, size.count(), MADV_HUGEPAGE) == 0;
  if (const int error = furnish(pages, node); error != 0) return refused(size, error);
  return pages;
}

void unmap_host_pages(const HostPages& pages) {
  munmap(pages.at, pages.size.count());
}

int host_node_of(const driver::Device& device, const std::string& sysfs) {
  const driver::Api& api = *device.api;
  CUdevice ordinal = 0;
  if (api.DeviceGet(&ordinal, static_cast<int>(device.id)) != CUDA_SUCCESS) return kNoNode;
  int node = kNoNode;
  if (api.DeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal) == CUDA_SUCCESS) {
    return node;
  }
  int domain = 0;
  int bus = 0;
  int pci_device = 0;
  if (api.DeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, ordinal) != CUDA_SUCCESS ||
      api.DeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, ordinal) != CUDA_SUCCESS ||
      api.DeviceGetAttribute(&pci_device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, ordinal) !=
          CUDA_SUCCESS) {
    return kNoNode;
  }
  char name[32];
  std::snprintf(name, sizeof name, "%04x:%02x:%02x.0", domain, bus, pci_device);
  return node_in(sysfs + "/bus/pci/devices/" + name + "/numa_node");
}

}  // namespace spillway
