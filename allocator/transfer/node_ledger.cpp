// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/node_ledger.h"

#include "allocator/base/file.h"
#include "allocator/base/process.h"
#include "allocator/transfer/host_room.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <limits>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace spillway {
namespace {

constexpr std::size_t kEntries = 1023;
constexpr std::uint64_t kMagic = 0x5350'494c'4c57'4101;  // its last digits are the version
constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kPause = std::chrono::milliseconds(1);

/// Small enough to fit in a page, so that a process that ends during a write leaves all or nothing.
struct Entry {
  std::uint64_t process = 0;
  std::uint64_t started = 0;
  std::uint64_t bytes = 0;
  std::uint64_t check = 0;

  [[nodiscard]] std::uint64_t sum() const {
    constexpr std::uint64_t kOdd = 0x9e37'79b9'7f4a'7c15;
    return ((process * kOdd + started) * kOdd + bytes) * kOdd + kMagic;
  }

  [[nodiscard]] bool free() const { return process == 0; }

  /// True only with proof that the process of this entry has ended. A share that is kept too long
  /// is harmless; one released too early lets processes exceed the limit together.
  [[nodiscard]] bool stale() const {
    return process > std::numeric_limits<std::int32_t>::max() ||
           has_ended(static_cast<std::int32_t>(process), started);
  }

  [[nodiscard]] bool sound() const {
    if (free()) return started == 0 && bytes == 0 && check == 0;
    return check == sum() && Bytes{bytes} <= kNoMachineHasThis;
  }
};

struct Content {
  Entry head;  // kMagic in `check`, otherwise empty
  std::array<Entry, kEntries> entries;
};

static_assert(sizeof(Entry) == 32 && 4096 % sizeof(Entry) == 0);

std::string namespace_of_processes() {
  std::array<char, 64> name{};
  if (readlink("/proc/self/ns/pid", name.data(), name.size() - 1) < 0) return "0";
  std::string digits;
  for (const char each : name) {
    if (each >= '0' && each <= '9') digits += each;
  }
  return digits;
}

/// The locked file and its content.
class OpenLedger {
 public:
  /// `stalled`: whether the last attempt to lock timed out; this one then tries once.
  /// Errors: as NodeLedger::check().
  static Result<OpenLedger> open(const std::string& path, std::atomic<bool>& stalled);

  /// This process's entry, or a free one for it; null if there is none.
  Entry* own() {
    const auto process = static_cast<std::uint64_t>(getpid());
    auto* const found = std::find_if(content_.entries.begin(),
                                     content_.entries.end(),
                                     [&](const Entry& entry) { return entry.process == process; });
    if (found != content_.entries.end()) return &*found;
    auto* const free = std::find_if(content_.entries.begin(),
                                    content_.entries.end(),
                                    [](const Entry& entry) { return entry.free(); });
    return free == content_.entries.end() ? nullptr : &*free;
  }

  [[nodiscard]] Bytes total() const {
    Bytes sum;
    for (const Entry& entry : content_.entries)
      sum += Bytes{entry.bytes};
    return sum;
  }

  /// Sets this process's share to `bytes`, in `entry`. Errors: errno.
  int write(Entry& entry, Bytes bytes) {
    const pid_t process = getpid();
    entry = bytes.zero() ? Entry{}
                         : Entry{static_cast<std::uint64_t>(process),
                                 start_of(process).value_or(0),  // 0: unknown
                                 bytes.count(),
                                 0};
    if (!bytes.zero()) entry.check = entry.sum();
    return store(entry);
  }

 private:
  explicit OpenLedger(File file) : file_(std::move(file)) {}

  Status lock(const std::string& path, std::atomic<bool>& stalled) const;
  Status read(const std::string& path);
  /// Releases the shares of ended processes.
  void release_stale();

  int store(const Entry& entry) {
    const auto at =
        reinterpret_cast<const char*>(&entry) - reinterpret_cast<const char*>(&content_);
    const ssize_t written = pwrite(file_.number(), &entry, sizeof entry, at);
    if (written < 0) return errno;
    return written == sizeof entry ? 0 : ENOSPC;
  }

  File file_;  // closing it releases its lock
  Content content_;
};

Status distrusted(const std::string& path, const std::string& why) {
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        path + " counts what processes pin for SPILLWAY_NODE_PINNED_LIMIT, and " +
                            why + ". Remove the file, or leave the limit unset.");
}

/// The ledger may be sound, but this process could not `what` it.
Status failed(const std::string& path, const std::string& what, int error) {
  std::string text = path +
                     " counts what processes pin for SPILLWAY_NODE_PINNED_LIMIT, and cannot be " +
                     what + " (" + std::generic_category().message(error) + ")";
  if (error == ENOSPC || error == EDQUOT) {
    text += ". Its file system is full. Free space in " + path.substr(0, path.rfind('/')) + ".";
  } else if (error == EMFILE || error == ENFILE) {
    text += ". No file descriptor is left. Raise `ulimit -n`.";
  } else {
    text += ". Check the folder and its permissions, or leave the limit unset.";
  }
  return SPILLWAY_ERROR(Code::kInvalidArgument, text);
}

Result<OpenLedger> OpenLedger::open(const std::string& path, std::atomic<bool>& stalled) {
  OpenLedger ledger(File(::open(
      path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR)));
  // With O_NOFOLLOW, ELOOP means a symbolic link.
  if (!ledger.file_.open() && (errno == ELOOP || errno == EISDIR || errno == ENXIO)) {
    return distrusted(path, "it is not a regular file with one link");
  }
  if (!ledger.file_.open()) return failed(path, "opened", errno);

  struct stat about {};

  if (fstat(ledger.file_.number(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_nlink != 1) {
    return distrusted(path, "it is not a regular file with one link");
  }
  if (about.st_uid != geteuid()) return distrusted(path, "it belongs to another owner");
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return distrusted(path, "others may use it");
  }
  SPILLWAY_RETURN_IF_ERROR(ledger.lock(path, stalled));
  SPILLWAY_RETURN_IF_ERROR(ledger.read(path));
  ledger.release_stale();
  return ledger;
}

Status OpenLedger::lock(const std::string& path, std::atomic<bool>& stalled) const {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (flock(file_.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed(path, "locked", errno);
    if (stalled.load(std::memory_order_relaxed) || std::chrono::steady_clock::now() > until) {
      stalled.store(true, std::memory_order_relaxed);
      std::string text = path;
      text += " is locked by a process that does not release it. End that process: `fuser ";
      text += path;
      text += "` lists it.";
      return SPILLWAY_ERROR(Code::kOutOfHostMemory, text);
    }
    std::this_thread::sleep_for(kPause);
  }
  stalled.store(false, std::memory_order_relaxed);
  return {};
}

Status OpenLedger::read(const std::string& path) {
  struct stat about {};

  if (fstat(file_.number(), &about) != 0) return failed(path, "read", errno);
  if (about.st_size == 0 && ftruncate(file_.number(), sizeof(Content)) != 0) {
    return failed(path, "written", errno);
  }
  // The file must not have more bytes than this.
  std::array<char, sizeof(Content) + 1> bytes{};
  const ssize_t count = pread(file_.number(), bytes.data(), bytes.size(), 0);
  if (count < 0) return failed(path, "read", errno);
  if (count != sizeof(Content)) {
    return distrusted(path, "it has another size than such a file");
  }
  std::copy_n(bytes.data(), sizeof(Content), reinterpret_cast<char*>(&content_));
  Entry& head = content_.head;
  const bool finished = head.check == kMagic;
  const bool sound = head.free() && (finished || head.check == 0) &&
                     std::all_of(content_.entries.begin(),
                                 content_.entries.end(),
                                 [](const Entry& entry) { return entry.sound(); });
  if (!sound) return distrusted(path, "it holds something else");
  if (finished) return {};
  head.check = kMagic;
  const int error = store(head);
  return error == 0 ? Status() : failed(path, "written", error);
}

void OpenLedger::release_stale() {
  for (Entry& entry : content_.entries) {
    if (entry.free() || !entry.stale()) continue;
    entry = {};
    store(entry);
  }
}

}  // namespace

NodeLedger::NodeLedger(const std::string& folder)
    : path_(folder + "/spillway-" + std::to_string(geteuid()) + '-' + namespace_of_processes() +
            ".pinned") {}

Status NodeLedger::check() const {
  return OpenLedger::open(path_, stalled_).status();
}

Status NodeLedger::charge(Bytes size, Bytes limit) {
  SPILLWAY_ASSIGN_OR_RETURN(OpenLedger ledger, OpenLedger::open(path_, stalled_));
  const Bytes total = ledger.total();
  // A value above any machine's memory would be invalid for the next reader.
  if (size > kNoMachineHasThis || total + size > std::min(limit, kNoMachineHasThis)) {
    return SPILLWAY_ERROR(Code::kOutOfHostMemory,
                          readable(total) +
                              " are pinned by the processes of this machine, and "
                              "SPILLWAY_NODE_PINNED_LIMIT is " +
                              readable(limit) + ". Raise or unset it.");
  }
  Entry* const own = ledger.own();
  if (own == nullptr) {
    return SPILLWAY_ERROR(Code::kOutOfHostMemory,
                          path_ + " has no entry left for this process: it holds " +
                              std::to_string(kEntries) +
                              " processes that pin memory. Remove the file when no job runs.");
  }
  const int error = ledger.write(*own, Bytes{own->bytes} + size);
  return error == 0 ? Status() : failed(path_, "written", error);
}

void NodeLedger::release(Bytes size) {
  Result<OpenLedger> ledger = OpenLedger::open(path_, stalled_);
  if (!ledger.ok()) return;
  Entry* const own = ledger.value().own();
  if (own == nullptr) return;
  const Bytes bytes{own->bytes};
  ledger.value().write(*own, saturating_sub(bytes, size));
}

}  // namespace spillway
