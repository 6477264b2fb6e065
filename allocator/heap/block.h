// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/fence_set.h"

#include <vector>

namespace spillway {

/// Who a block belongs to.
///   kFree: the region; becomes kLive when it is handed out.
///   kLive: a client; becomes kFree when it is freed, kLost where its other users cannot be marked
///   then. kLost: nobody, for ever: somebody may still use it and there is no way to know.
enum class BlockState { kFree, kLive, kLost };

/// A piece of a region's mapped memory, keyed by its address.
struct Block {
  Bytes size;
  Bytes requested;  // live ones
  BlockState state = BlockState::kFree;
  TagId tag = TagId::kUntagged;
  FenceSet fences;
  std::vector<driver::Stream> users;  // live ones: streams other than the region's
};

}  // namespace spillway
