// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/deferred_waits.h"

namespace spillway {
namespace {

thread_local constinit DeferredWaits* innermost = nullptr;

}  // namespace

DeferredWaits*& DeferredWaits::active() {
  return innermost;
}

}  // namespace spillway
