// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/memory_file.h"

#include "allocator/base/file.h"
#include "emulator/device/addresses.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace spillway::emulator {
namespace {

constexpr std::uintptr_t kAddresses = 1ULL << 47U;  // user space ends here

/// A file over the limit raises a signal that ends the process, so the limit is checked first.
bool limit_allows() {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= rlim_t{MemoryFile::kSize};
}

}  // namespace

std::string MemoryFile::name_of(int device) {
  return "spillway-device-memory-" + std::to_string(device);
}

int MemoryFile::descriptor() {
  if (file_ >= 0) return file_;
  const int file = limit_allows()
                       ? above_standard_streams(memfd_create(name_of(device_).c_str(), MFD_CLOEXEC))
                       : -1;
  if (file < 0 || ftruncate(file, kSize) != 0) {
    if (file >= 0) close(file);
    std::fprintf(stderr,
                 "spillway-emulator: the machine refuses a file for device memory; see `ulimit -n` "
                 "and `ulimit -f`\n");
    return -1;
  }
  file_ = file;
  free_.give({kAddresses, std::uintptr_t{kNotes}});
  return file_;
}

std::optional<off_t> MemoryFile::place(std::uintptr_t address, std::size_t bytes) {
  if (descriptor() < 0) return std::nullopt;
  std::optional<Range> range = Range{address, address + bytes};
  if (address == 0 || first_overlap(placed_, *range) != placed_.end()) {
    range = free_.take(bytes, kGranularity);
  }
  if (!range) return std::nullopt;
  placed_.emplace(range->begin, Placed{*range});
  return static_cast<off_t>(range->begin);
}

void MemoryFile::drop(off_t offset, std::size_t bytes) {
  const auto begin = static_cast<std::uintptr_t>(offset);
  clear(offset, bytes);
  placed_.erase(begin);
  if (begin >= kAddresses) free_.give({begin, begin + bytes});
}

void MemoryFile::clear(off_t offset, std::size_t bytes) const {
  constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  fallocate(file_, kMode, offset, static_cast<off_t>(bytes));
}

bool MemoryFile::map(Range range, off_t offset, int protection) {
  return descriptor() >= 0 && map(file_, range, offset, protection);
}

bool MemoryFile::map(int file, Range range, off_t offset, int protection) {
  constexpr int kFlags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
  return mmap(range.at(), range.bytes(), protection, kFlags, file, offset) != MAP_FAILED;
}

bool MemoryFile::fill(off_t offset, std::size_t bytes, unsigned char value) const {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, offset);
  if (memory == MAP_FAILED) return false;
  std::memset(memory, value, bytes);
  munmap(memory, bytes);
  return true;
}

}  // namespace spillway::emulator
