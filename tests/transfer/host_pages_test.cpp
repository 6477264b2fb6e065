// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_pages.h"

#include "tests/heap/heap_fixture.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>

namespace spillway {
namespace {

bool all_present(const HostPages& pages) {
  std::vector<unsigned char> present(pages.size.count() / 4096);
  EXPECT_EQ(mincore(pages.at, pages.size.count(), present.data()), 0);
  return std::all_of(present.begin(), present.end(), [](unsigned char page) { return page & 1U; });
}

TEST(HostPagesTest, EveryPageHasMemoryAtOnce) {
  const HostPages pages = map_host_pages(3_MiB, kNoNode).value();

  EXPECT_TRUE(all_present(pages));
  unmap_host_pages(pages);
}

TEST(HostPagesTest, EveryPageHasMemoryWhereSeveralThreadsTouchIt) {
  const HostPages pages = map_host_pages(258_MiB + 4_KiB, kNoNode).value();

  EXPECT_TRUE(all_present(pages));
  unmap_host_pages(pages);
}

TEST(HostPagesTest, MemoryOfAHugePageOrMoreBeginsAtAMultipleOfOne) {
  const HostPages pages = map_host_pages(2_MiB + 4_KiB, kNoNode).value();

  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.at) % (2U << 20U), 0U);
  unmap_host_pages(pages);
}

TEST(HostPagesTest, UnmappingReleasesAllThatWasMapped) {
  const HostPages pages = map_host_pages(3_MiB, kNoNode).value();
  unmap_host_pages(pages);

  for (const std::size_t page : {std::size_t{0}, (3U << 20U) - 4096UL}) {
    EXPECT_EQ(msync(pages.at + page, 4096, MS_ASYNC), -1);
    EXPECT_EQ(errno, ENOMEM);
  }
}

TEST(HostPagesTest, ANodeThatTheMachineDoesNotHaveIsNotTakenForItsOwn) {
  const HostPages pages = map_host_pages(4_KiB, 1000).value();

  EXPECT_FALSE(pages.on_node);
  unmap_host_pages(pages);
}

TEST(HostPagesTest, ASizeThatTheMachineDoesNotHaveIsATypedError) {
  EXPECT_EQ(map_host_pages(Bytes{1ULL << 49U}, kNoNode).status().code(), Code::kOutOfHostMemory);
}

/// Whether the page at `at` is in a child forked now.
bool in_child(std::byte* at) {
  const pid_t child = fork();
  if (child == 0) {
    unsigned char present = 0;
    _exit(mincore(at, 4096, &present) == 0 ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

TEST(HostPagesTest, AForkedChildDoesNotHaveThem) {
  const HostPages pages = map_host_pages(4_KiB, kNoNode).value();
  static std::array<std::byte, 16384> ordinary{};
  auto* const page = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(ordinary.data()) + 4095) & ~std::uintptr_t{4095});
  ASSERT_TRUE(in_child(page)) << "otherwise the test proves nothing";

  EXPECT_FALSE(in_child(pages.at));
  unmap_host_pages(pages);
}

/// A machine's description of its devices, for one device.
class HostNodeTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    const auto device = root_ / "bus/pci/devices/0001:0a:1f.0";
    std::filesystem::create_directories(device);
    std::ofstream(device / "numa_node") << "3\n";
  }

  void TearDown() override {
    std::filesystem::remove_all(root_);
    HeapTest::TearDown();
  }

  const std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("sysfs." + std::to_string(getpid()));
};

TEST_F(HostNodeTest, TheDriverIsAskedFirst) {
  table_.DeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID ? 5 : 0;
    return CUDA_SUCCESS;
  };

  EXPECT_EQ(host_node_of(device_, root_), 5);
}

TEST_F(HostNodeTest, ADriverThatDoesNotKnowItIsAskedForThePlaceOnTheBus) {
  table_.DeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        *value = 1;
        return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *value = 0x0a;
        return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *value = 0x1f;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  };

  EXPECT_EQ(host_node_of(device_, root_), 3);
  EXPECT_EQ(host_node_of(device_, root_ / "nowhere"), kNoNode);
}

TEST_F(HostNodeTest, WithoutANodeNumberThereIsNone) {
  table_.DeviceGetAttribute = [](int*, CUdevice_attribute, CUdevice) {
    return CUDA_ERROR_INVALID_VALUE;
  };

  EXPECT_EQ(host_node_of(device_, root_), kNoNode);
}

}  // namespace
}  // namespace spillway
