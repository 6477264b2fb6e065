// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/trace_file.h"

#include "allocator/base/file.h"
#include "allocator/tag/tag.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace spillway {
namespace {

constexpr std::size_t kPiece = 65536;

Status failure(const std::string& path, int error) {
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        path + ": " + std::generic_category().message(error));
}

std::uint32_t number_in(std::unordered_map<std::uint64_t, std::uint32_t>& numbers,
                        std::uint64_t handle) {
  return numbers.try_emplace(handle, static_cast<std::uint32_t>(numbers.size())).first->second;
}

}  // namespace

TraceFile::TraceFile(DeviceId device, Bytes granularity)
    : encoder_(device, granularity), tags_{{TagId::kUntagged, 0}} {}

TraceFile::~TraceFile() {
  if (file_ >= 0) ::close(file_);
}

Status TraceFile::open(const std::string& path) {
  path_ = path;
  file_ =
      above_standard_streams(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  return file_ < 0 ? failure(path, errno) : Status();
}

void TraceFile::add(TraceEvent event, TagId tag, std::uint64_t stream, std::uint64_t pool) {
  if (error_ != 0) {
    ++unwritten_;
    return;
  }
  event.tag = number_of(tag);
  if (event.kind == TraceEvent::Kind::kAllocate) {
    event.stream = number_in(streams_, stream);
    event.pool = number_in(pools_, pool);
  }
  encoder_.add(event);
  if (encoder_.bytes().size() >= kPiece) flush();
}

std::uint32_t TraceFile::number_of(TagId tag) {
  const auto [known, fresh] = tags_.try_emplace(tag, static_cast<std::uint32_t>(tags_.size()));
  if (fresh) encoder_.name(tag_name(tag));
  return known->second;
}

void TraceFile::flush() {
  std::string& bytes = encoder_.bytes();
  std::size_t done = 0;
  while (done < bytes.size() && error_ == 0) {
    const ssize_t wrote = ::write(file_, bytes.data() + done, bytes.size() - done);
    if (wrote >= 0) {
      done += static_cast<std::size_t>(wrote);
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  bytes.clear();
}

Status TraceFile::close() {
  if (error_ == 0) {
    encoder_.end(0);
    flush();
  }
  if (::close(file_) != 0 && error_ == 0) error_ = errno;
  file_ = -1;
  return error_ == 0 ? Status() : failure(path_, error_);
}

}  // namespace spillway
