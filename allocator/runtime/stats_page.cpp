// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/stats_page.h"

#include "allocator/base/file.h"
#include "allocator/base/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

namespace spillway {
namespace {

Status cannot(const std::string& path, int error) {
  return SPILLWAY_ERROR(
      Code::kInvalidArgument,
      path + ": the statistics page cannot be made: " + std::generic_category().message(error));
}

}  // namespace

StatsPage::~StatsPage() {
  close();
}

Status StatsPage::open(const std::string& path) {
  close();
  const File file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.open()) return cannot(path, errno);
  const std::size_t size = sizeof(StatsPageLayout);
  void* mapped = MAP_FAILED;
  // Room is reserved now: a write to a page that the file system cannot hold would end the process.
  int error = ::posix_fallocate(file.number(), 0, static_cast<off_t>(size));
  if (error == 0) {
    mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
    if (mapped == MAP_FAILED) error = errno;
  }
  if (error != 0) {
    ::unlink(path.c_str());
    return cannot(path, error);
  }
  ::madvise(mapped, size, MADV_DONTFORK);
  path_ = path;
  page_ = static_cast<StatsPageLayout*>(mapped);
  process_ = static_cast<std::uint64_t>(::getpid());
  process_start_ = start_of(::getpid()).value_or(0);
  writes_ = 0;
  write({});
  return {};
}

void StatsPage::write(StatsPageLayout content) {
  content.magic = StatsPageLayout::kMagic;
  content.version = StatsPageLayout::kVersion;
  content.size = sizeof(StatsPageLayout);
  content.process = process_;
  content.process_start = process_start_;
  content.updated =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  content.writes = ++writes_;
  const std::atomic_ref<std::uint64_t> sequence(page_->sequence);
  const std::uint64_t before = sequence.load(std::memory_order_relaxed);
  sequence.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  content.sequence = before + 1;
  std::memcpy(page_, &content, sizeof content);
  std::atomic_thread_fence(std::memory_order_release);
  sequence.store(before + 2, std::memory_order_relaxed);
}

void StatsPage::close() {
  if (page_ == nullptr) return;
  ::munmap(page_, sizeof(StatsPageLayout));
  ::unlink(path_.c_str());
  page_ = nullptr;
}

}  // namespace spillway
