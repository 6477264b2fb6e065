// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/host_file.h"

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <limits>

namespace spillway {
namespace {

/// Created with access for its owner only, under an unused name that is removed at once.
File open_nameless(const std::string& directory) {
  std::string name = directory + "/.spillway-XXXXXX";
  File file(::mkostemp(name.data(), O_CLOEXEC));
  const int why = errno;
  TORCH_CHECK_VALUE(file.open(),
                    "Spillway: offload_device '",
                    directory,
                    "' cannot hold a file: ",
                    std::strerror(why),
                    ". Pass 'cpu', or a directory where this process may create files.");
  TORCH_CHECK(::unlink(name.c_str()) == 0,
              "Spillway: offload_device: the temporary file ",
              name,
              " cannot be unlinked (",
              std::strerror(errno),
              "). Use a directory where this process may delete files.");
  return file;
}

/// Transfers `size` bytes by calls of `step(done)`, which are as pread and pwrite.
template <typename Step>
Status all_of(Bytes size, const char* what, const Step& step) {
  std::size_t done = 0;
  while (done < size.count()) {
    const ssize_t copied = step(done);
    if (copied > 0) {
      done += static_cast<std::size_t>(copied);
    } else if (copied == 0 || errno != EINTR) {
      const std::string reason = copied == 0 ? "it has become shorter" : std::strerror(errno);
      return {Code::kInvalidArgument,
              std::string("offload_device: the file could not be ") + what + " (" + reason +
                  "). Check the disk.",
              __FILE__,
              __LINE__};
    }
  }
  return {};
}

}  // namespace

std::shared_ptr<HostFile> HostFile::create(const std::string& directory, Bytes size) {
  File file = open_nameless(directory);

  struct statvfs disk {};

  TORCH_CHECK(::fstatvfs(file.number(), &disk) == 0,
              "Spillway: offload_device: the free space of '",
              directory,
              "' is unknown (",
              std::strerror(errno),
              "). Use another directory.");
  std::uint64_t free = 0;
  if (__builtin_mul_overflow(std::uint64_t{disk.f_bavail}, std::uint64_t{disk.f_frsize}, &free)) {
    free = std::numeric_limits<std::uint64_t>::max();
  }
  const auto refuse = [&](const std::string& why) {
    TORCH_CHECK_VALUE(false,
                      "Spillway: offload_device='",
                      directory,
                      "': the model needs ",
                      readable(size),
                      " there, but ",
                      why,
                      ". Use a directory with more free space.");
  };
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (size > Bytes{std::min(free, kMax)}) refuse(readable(Bytes{free}) + " are free");
  const int error = ::posix_fallocate(file.number(), 0, static_cast<off_t>(size.count()));
  if (error != 0) refuse(std::string("posix_fallocate failed (") + std::strerror(error) + ")");
  void* const data =
      ::mmap(nullptr, size.count(), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (data == MAP_FAILED) refuse(std::string("mmap failed (") + std::strerror(errno) + ")");
  return std::make_shared<HostFile>(std::move(file), static_cast<std::byte*>(data), size);
}

HostFile::~HostFile() {
  ::munmap(data_, size_.count());
}

std::byte* HostFile::take(Bytes size) {
  SPILLWAY_CHECK(size <= size_ - taken_);
  std::byte* const at = data_ + taken_.count();
  taken_ += size;
  return at;
}

void HostFile::expect(const std::byte* at, Bytes size) const {
  ::posix_fadvise(
      file_.number(), at - data_, static_cast<off_t>(size.count()), POSIX_FADV_WILLNEED);
}

Status HostFile::read(const std::byte* from, std::byte* to, Bytes size) const {
  return all_of(size, "read", [&](std::size_t done) {
    return ::pread(file_.number(),
                   to + done,
                   size.count() - done,
                   from - data_ + static_cast<std::ptrdiff_t>(done));
  });
}

Status HostFile::write(const std::byte* from, std::byte* to, Bytes size) const {
  return all_of(size, "written", [&](std::size_t done) {
    return ::pwrite(file_.number(),
                    from + done,
                    size.count() - done,
                    to - data_ + static_cast<std::ptrdiff_t>(done));
  });
}

}  // namespace spillway
