// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/stats_page.h"

#include "allocator/base/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <system_error>
#include <utility>

namespace spillway {
namespace {

Status cannot(const std::string& path, int error) {
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        path + ": the statistics page cannot be created (" +
                            std::generic_category().message(error) +
                            "). Make its folder writable.");
}

}  // namespace

StatsPage::~StatsPage() {
  close();
}

Status StatsPage::open(const std::string& path) {
  close();
  File file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.open()) return cannot(path, errno);
  const int error =
      ::posix_fallocate(file.number(), 0, static_cast<off_t>(sizeof(StatsPageLayout)));
  if (error != 0) {
    ::unlink(path.c_str());
    return cannot(path, error);
  }
  path_ = path;
  file_ = std::move(file);
  process_ = static_cast<std::uint64_t>(::getpid());
  process_start_ = start_of(::getpid()).value_or(0);
  sequence_ = 0;
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
  ++sequence_;
  write_sequence();
  content.sequence = sequence_;
  write_at(0, &content, sizeof content);
  ++sequence_;
  write_sequence();
}

void StatsPage::write_sequence() {
  write_at(offsetof(StatsPageLayout, sequence), &sequence_, sizeof sequence_);
}

void StatsPage::write_at(std::size_t offset, const void* bytes, std::size_t size) {
  // A page that cannot be written is stale; the job does not depend on it.
  while (::pwrite(file_.number(), bytes, size, static_cast<off_t>(offset)) < 0 && errno == EINTR) {
  }
}

void StatsPage::close() {
  if (!file_.open()) return;
  file_ = File();
  ::unlink(path_.c_str());
}

}  // namespace spillway
