// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/pool_scope.h"

#include <atomic>
#include <cstdint>
#include <utility>

namespace spillway {
namespace {

// Read by every allocation. So few bytes always fit in the static TLS block.
[[gnu::tls_model("initial-exec")]] thread_local constinit PoolId innermost = PoolId::kShared;

}  // namespace

PoolId new_pool() {
  static std::atomic<std::uint64_t> next{static_cast<std::uint64_t>(PoolId::kFirstApart)};
  return PoolId{next.fetch_add(1, std::memory_order_relaxed)};
}

PoolId current_pool() {
  return innermost;
}

PoolScope::PoolScope(PoolId pool) : outer_(std::exchange(innermost, pool)) {}

PoolScope::~PoolScope() {
  innermost = outer_;
}

}  // namespace spillway
