// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/file.h"
#include "allocator/base/result.h"
#include "allocator/runtime/stats.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace spillway {

/// The layout of the file that `spillway top` reads. The process rewrites it continually. A reader
/// copies it while `sequence` is even and the same before and after the copy. Integers are
/// little-endian. A changed layout gets a new version.
struct StatsPageLayout {
  static constexpr std::array<char, 8> kMagic = {'S', 'P', 'I', 'L', 'L', 'T', 'O', 'P'};
  static constexpr std::uint32_t kVersion = 4;
  static constexpr std::size_t kMaxDevices = 8;
  static constexpr std::size_t kMaxTags = 24;

  struct Device {
    std::uint64_t allocated;  // bytes, like all fields that follow but the last
    std::uint64_t allocated_peak;
    std::uint64_t reserved;
    std::uint64_t offloaded;
    std::uint64_t pinned;
    std::uint64_t pinned_peak;
    std::uint64_t copied_out;  // since the process started
    std::uint64_t copied_in;
    std::uint64_t capacity;
    std::array<std::uint64_t, ModelStateBytes::kClasses> resident;  // model state by class
    std::array<std::uint64_t, ModelStateBytes::kClasses> away;      // likewise, on the host only
    std::uint64_t index;
  };

  struct Tag {
    std::array<char, 64> name;  // ends at the first NUL byte
    std::uint64_t offloaded;    // bytes in the last step
    std::uint64_t offloadable;
    std::uint64_t stalls;   // since the process started
    std::uint64_t stalled;  // nanoseconds of device time
  };

  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t size;  // of the whole structure
  std::uint64_t process;
  std::uint64_t process_start;  // start_of()
  std::uint64_t sequence;       // odd during a write
  std::uint64_t updated;        // nanoseconds since 1970
  std::uint64_t writes;
  std::uint64_t steps;
  std::uint32_t emulated;
  std::uint32_t devices;
  std::uint32_t tags;
  std::uint32_t ours;         // the memory is Spillway's; otherwise only copies are counted
  std::uint32_t cannot_help;  // a HelplessReason
  std::uint32_t unused;
  std::uint64_t cannot_help_bytes;
  std::array<Device, kMaxDevices> device;
  std::array<Tag, kMaxTags> tag;
};

static_assert(std::is_trivially_copyable_v<StatsPageLayout>);
static_assert(sizeof(StatsPageLayout) == 96 + 8 * 160 + 24 * 96);

/// The page of this process.
/// Threads: confined; the reader is another process.
/// Ownership: owns the file and removes it at destruction.
class StatsPage {
 public:
  StatsPage() = default;
  ~StatsPage();
  StatsPage(const StatsPage&) = delete;
  StatsPage& operator=(const StatsPage&) = delete;

  /// Creates the file with access for its user only.
  /// Errors: kInvalidArgument if it cannot be created.
  Status open(const std::string& path);

  [[nodiscard]] bool is_open() const { return file_.open(); }

  /// Publishes `content`. Fills in its first fields up to `sequence`, `updated` and `writes`.
  /// Requires: is_open().
  void write(StatsPageLayout content);

  void close();

 private:
  void write_sequence();
  void write_at(std::size_t offset, const void* bytes, std::size_t size);

  std::string path_;
  File file_;  // not mapped: a write to a truncated mapping would end the process
  std::uint64_t sequence_ = 0;
  std::uint64_t process_ = 0;
  std::uint64_t process_start_ = 0;
  std::uint64_t writes_ = 0;
};

}  // namespace spillway
