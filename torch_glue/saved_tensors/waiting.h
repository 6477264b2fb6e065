// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/runtime.h"

#include <memory>
#include <vector>

namespace spillway {

class SavedStorage;

/// The storages of the running step that may have to be offloaded later in it, or fetched. Owns
/// none of them. If the device has no room for an allocation, they are offloaded.
/// Threads: safe.
namespace waiting {

void add(const Site& site, std::weak_ptr<SavedStorage> storage);

/// Removes and returns the storage of that site; null if it has ended.
std::shared_ptr<SavedStorage> take(const Site& site);

/// The storages of a device, per tag in the order of their saves. Backward passes usually use the
/// first one last.
std::vector<std::shared_ptr<SavedStorage>> all_on(DeviceId device);

}  // namespace waiting
}  // namespace spillway
