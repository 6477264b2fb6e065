// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/runtime.h"

#include <memory>

namespace spillway {

class SavedStorage;

/// The storages of the running step that may have to move later in it. Owns none of them.
/// Threads: safe.
namespace waiting {

void add(const Site& site, std::weak_ptr<SavedStorage> storage);

/// The one at that site, no longer here; null where it has ended.
std::shared_ptr<SavedStorage> take(const Site& site);

}  // namespace waiting
}  // namespace spillway
