// SPDX-License-Identifier: Apache-2.0
// libspillway_settings.so: checks of settings for the launcher, which loads no CUDA library. The
// returned texts are valid until the thread's next call.
#include "allocator/base/setting_values.h"
#include "allocator/base/settings.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

const char* kept(std::string text) {
  static thread_local std::string last;
  last = std::move(text);
  return last.c_str();
}

/// The text of an error; null for success.
const char* text_of(const spillway::Status& status) {
  return status.ok() ? nullptr : kept(status.detail());
}

}  // namespace

extern "C" {

/// Checks a value of `length` bytes. `shown` is what an error calls the setting.
const char* spillway_settings_check(const char* variable,
                                    const char* shown,
                                    const char* value,
                                    std::size_t length) {
  using namespace spillway::settings;  // NOLINT(google-build-using-namespace): of this function
  const Setting* const setting = find(variable);
  if (setting == nullptr) return text_of(check_name(variable));
  return text_of(check(*setting, shown, std::string_view(value, length)));
}

/// Checks the rules for `count` texts, as settings::check_rules().
const char* spillway_settings_check_rules(const char* const* given, std::size_t count) {
  return text_of(spillway::settings::check_rules(std::vector<std::string>(given, given + count)));
}

/// Bytes of a size such as "20GiB"; UINT64_MAX for another text.
std::uint64_t spillway_settings_size(const char* text, std::size_t length) {
  const auto size = spillway::settings::read_size(std::string_view(text, length));
  return size ? size->count() : UINT64_MAX;
}

/// A value of a size setting, as setting_of().
const char* spillway_settings_text_of_size(std::uint64_t bytes) {
  return kept(spillway::setting_of(spillway::Bytes{bytes}));
}
}
