// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/runtime.h"

#include <memory>
#include <vector>

namespace spillway {

class SavedStorage;

/// The storages of the running step that may have to move later in it, or are fetched. Owns none of
/// them. Where the device has no room for an allocation, they are offloaded. Threads: safe.
namespace waiting {

void add(const Site& site, std::weak_ptr<SavedStorage> storage);

/// The one at that site, no longer here; null where it has ended.
std::shared_ptr<SavedStorage> take(const Site& site);

/// Those of a device, per tag in the order in which they were saved: backward passes mostly use the
/// first one last.
std::vector<std::shared_ptr<SavedStorage>> all_on(DeviceId device);

}  // namespace waiting
}  // namespace spillway
