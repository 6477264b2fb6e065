// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/pinned_pieces.h"

#include "tests/heap/heap_fixture.h"

#include <pthread.h>

namespace spillway {
namespace {

/// New threads are asked to have a stack that no machine has: none begins.
class NoNewThreads {
 public:
  NoNewThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t attributes = before_;
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, std::size_t{1} << 60U), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
  }

  ~NoNewThreads() { pthread_setattr_default_np(&before_); }

  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

class PinnedPiecesTest : public HeapTest {};

TEST_F(PinnedPiecesTest, APieceThatNoThreadCanMakeTakesNothingOfTheBudget) {
  PinnedOptions options;
  options.limit = 8_MiB;
  PinnedPieces pieces(device_, options);
  {
    const NoNewThreads none;
    pieces.begin(8_MiB);
  }

  EXPECT_EQ(pieces.begun(), 0_B);
  EXPECT_EQ(pieces.registered(), 0_B);
  EXPECT_TRUE(pieces.add(8_MiB).ok());
}

TEST_F(PinnedPiecesTest, APieceThatIsBegunTakesItsPartOfTheBudgetAtOnce) {
  PinnedOptions options;
  options.limit = 8_MiB;
  PinnedPieces pieces(device_, options);
  pieces.begin(6_MiB);

  EXPECT_EQ(pieces.registered(), 6_MiB);
  EXPECT_EQ(pieces.add(4_MiB).status().code(), Code::kOutOfHostMemory);
  EXPECT_TRUE(pieces.finish().ok());
}

}  // namespace
}  // namespace spillway
