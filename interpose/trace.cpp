// SPDX-License-Identifier: Apache-2.0
#include "interpose/trace.h"

#include "allocator/base/file.h"
#include "allocator/base/log.h"
#include "allocator/base/mutex.h"
#include "interpose/clock.h"
#include "interpose/mode.h"
#include "interpose/trace_format.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace spillway::interpose {
namespace {

constexpr int kMaxTries = 2000;  // a millisecond each

/// The open trace. Threads that drain their rings use `number` alone.
struct Writing {
  bool on = false;
  bool ending = false;  ///< the recorded events are being written
  std::string path;
  Moment begun;
  std::atomic<int> number{-1};   ///< the open file; -1: not created yet
  std::atomic<dev_t> device{0};  ///< the file's device at its creation
  std::atomic<ino_t> inode{0};
  std::atomic<int> error{0};  ///< errno of the first failure
  LightMutex mutex;
};

Writing& writing() {
  static auto* only = new Writing;  // never freed: threads write while the process ends
  return *only;
}

void failed(int error) {
  int none = 0;
  if (!writing().error.compare_exchange_strong(none, error)) return;
  log("preload: " + writing().path + ": " + std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
}

/// Whether the descriptor still refers to our file: a program that closes all files, as daemons do,
/// may reuse the number.
bool is_ours(int number) {
  struct stat is {};

  return fstat(number, &is) == 0 && is.st_dev == writing().device.load() &&
         is.st_ino == writing().inode.load();
}

void close_ours(int number) {
  if (number >= 0 && is_ours(number)) close(number);
}

/// One write, so that threads need no lock: the file is open for appending.
void append(int number, std::array<iovec, 2> parts) {
  if (!is_ours(number)) return failed(EBADF);
  const std::size_t bytes = parts[0].iov_len + parts[1].iov_len;
  const ssize_t written = writev(number, parts.data(), static_cast<int>(parts.size()));
  if (written < 0) return failed(errno);
  if (static_cast<std::size_t>(written) != bytes) failed(ENOSPC);
}

template <typename Head>
std::array<iovec, 2> parts(Head& head, const void* body, std::size_t bytes) {
  return {{{&head, sizeof head}, {const_cast<void*>(body), bytes}}};  // NOLINT: writev reads only
}

Moment now() {
  return {ticks(), nanoseconds()};
}

/// Must not truncate a file that another running process is writing: adds the process ID to the
/// path.
File make(const std::string& path) {
  File file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.open() && flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    file = File(open((path + "." + std::to_string(getpid())).c_str(),
                     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                     0666));
  }
  if (file.open() && ftruncate(file.number(), 0) != 0 && errno != EINVAL) return {};
  return file;
}

/// The file, created with its header on first use; -1 if it cannot be created.
int file() {
  Writing& to = writing();
  if (const int number = to.number.load(std::memory_order_acquire); number >= 0) return number;
  if (to.error.load() != 0) return -1;
  const LightLock locked(writing().mutex);
  if (!to.on) return -1;
  if (const int number = to.number.load(); number >= 0) return number;
  File made = make(to.path);

  struct stat is {};

  if (!made.open() || fstat(made.number(), &is) != 0) {
    failed(errno);
    return -1;
  }
  to.device.store(is.st_dev);
  to.inode.store(is.st_ino);
  const std::string names = names_text();
  FileHead head{.begun = to.begun, .process = getpid()};
  head.names_bytes = static_cast<std::uint32_t>(names.size());
  append(made.number(), parts(head, names.data(), names.size()));
  to.number.store(made.release(), std::memory_order_release);
  return to.number.load();
}

void write_events(std::int32_t thread, const Event* events, std::size_t count) {
  const int number = file();
  if (number < 0) return;
  EventsHead head{.thread = thread, .now = now()};
  head.section.bytes += static_cast<std::uint32_t>(count * sizeof(Event));
  append(number, parts(head, events, count * sizeof(Event)));
}

bool drain(ThreadCounters& counters) {
  return counters.ring.drain([&counters](const Event* events, std::size_t count) {
    write_events(counters.thread.load(), events, count);
  });
}

/// Drains all rings while threads may drain theirs: each writes the events that it has claimed.
/// Retries for a limited time, because such a thread may be this one, in a signal handler. Returns
/// the number of events lost for lack of memory.
std::uint64_t drain_all() {
  std::uint64_t lost = 0;
  int tries = 0;
  for (ThreadCounters* each = all_counters(); each != nullptr; each = each->next) {
    while (!drain(*each) && tries++ < kMaxTries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lost += each->ring.lost();
  }
  return lost;
}

std::string with_process(std::string path) {
  const std::size_t at = path.find("%p");
  return at == std::string::npos ? path : path.replace(at, 2, std::to_string(getpid()));
}

/// An absolute path: the program may change its directory before the file is created.
std::string absolute(const std::string& path) {
  std::array<char, 4096> folder{};
  if (path.starts_with('/') || getcwd(folder.data(), folder.size()) == nullptr) return path;
  return std::string(folder.data()) + "/" + path;
}

}  // namespace

Status trace_begin(std::string path) {
  if (path.empty()) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "path is empty. Pass the file to write the trace to.");
  }
  // First, because a forked child must not wait for a lock of its parent's threads.
  if (stopped()) {
    return SPILLWAY_ERROR(
        Code::kNotReady,
        "a trace cannot begin: this process is ending or was forked, and the preload library "
        "only forwards calls");
  }
  const LightLock locked(writing().mutex);
  Writing& to = writing();
  if (to.on) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          "a trace is being written to " + to.path + ". End it first.");
  }
  // Drops events of an earlier trace from the rings.
  for (ThreadCounters* each = all_counters(); each != nullptr; each = each->next) {
    each->ring.drain([](const Event* /*unused*/, std::size_t /*unused*/) {});
  }
  to.path = absolute(with_process(std::move(path)));
  to.begun = now();
  to.error.store(0);
  to.on = true;
  set_mode(Mode::kRecord);
  return {};
}

Status trace_end() {
  Writing& to = writing();
  {
    if (stopped() == Stop::kForked)
      return SPILLWAY_ERROR(Code::kNotReady, "a forked child has no trace. End it in the parent.");
    const LightLock locked(writing().mutex);
    if (!to.on || std::exchange(to.ending, true)) {
      return SPILLWAY_ERROR(Code::kNotReady, "no trace is being written. Begin one first.");
    }
  }
  if (!stopped()) set_mode(Mode::kCount);
  const std::uint64_t lost = drain_all();
  const LightLock locked(writing().mutex);
  to.on = to.ending = false;
  const int number = to.number.exchange(-1);
  if (number >= 0) {
    EndHead head{.now = now(), .lost = lost};
    append(number, parts(head, nullptr, 0));
    close_ours(number);
  }
  if (const int error = to.error.load(); error != 0) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          to.path + ": " + std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
  }
  return {};
}

void trace_forget() {
  Writing& to = writing();
  to.on = to.ending = false;
  close_ours(to.number.exchange(-1));
}

Event* trace_flush_ring(ThreadCounters& counters) {
  drain(counters);
  Event* event = counters.ring.next();
  if (event == nullptr) counters.ring.lose();
  return event;
}

void trace_thread_ends(ThreadCounters& counters) {
  if (mode() == Mode::kRecord) drain(counters);
}

}  // namespace spillway::interpose
