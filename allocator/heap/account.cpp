// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/account.h"

#include "allocator/heap/accounting.h"

namespace spillway {

void Account::retag(TagId from, TagId to, Bytes size) {
  std::int64_t left = 0;
  {
    const LightLock lock(mutex_);
    TagShare& old = tags_.of(from);
    old.bytes.remove(size.count());
    --old.blocks;
    TagShare& tagged = tags_.of(to);
    ++tagged.blocks;
    left = tagged.bytes.add(size.count());
  }
  if (left < 0) settle(to);
}

void Account::settle(TagId tag) {
  accounting_.settle(*this, tag);
}

}  // namespace spillway
