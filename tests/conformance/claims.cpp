// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/claims.h"

namespace conformance {

void Claim::SetUp() {
  std::string why;
  cu = GetParam()->driver(&why);
  if (cu == nullptr) GTEST_SKIP() << GetParam()->name() << ": " << why;
  CUcontext context = nullptr;
  ASSERT_EQ(cu->DevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu->CtxSetCurrent(context), CUDA_SUCCESS);
}

void Claim::TearDown() {
  if (cu == nullptr) return;
  cu->CtxSynchronize();
  for (CUevent each : events_)
    cu->EventDestroy(each);
  for (CUstream each : streams_)
    cu->StreamDestroy(each);
  for (void* each : locked_)
    cu->MemFreeHost(each);
  for (CUdeviceptr each : allocations_)
    cu->MemFree(each);
  cu->DevicePrimaryCtxRelease(0);

  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string room = test->test_suite_name();
  std::string claim = test->name();
  claim = room.substr(room.rfind('/') + 1) + "." + claim.substr(0, claim.find('/'));
  const char* known = known_disagreement(GetParam()->name(), claim);
  if (known != nullptr) {
    EXPECT_FALSE(wrong_.empty()) << claim << " is met now: take it out of disagreements.cpp";
    return;
  }
  for (const std::string& each : wrong_)
    ADD_FAILURE() << each;
}

void Claim::agree(bool holds, const std::string& what, int line) {
  if (!holds) wrong_.push_back("line " + std::to_string(line) + ": not so: " + what);
}

void Claim::require(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) wrong_.push_back(std::string(what) + ": " + name_of(result));
}

std::string Claim::name_of(CUresult result) const {
  const char* name = nullptr;
  return cu->GetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr
             ? name
             : "error " + std::to_string(result);
}

void answers(Claim& claim, CUresult got, CUresult wanted, const char* call, int line) {
  if (got == wanted) return;
  claim.wrong_.push_back("line " + std::to_string(line) + ": " + call + " answers " +
                         claim.name_of(got) + ", not " + claim.name_of(wanted));
}

CUmemAllocationProp Claim::on_device(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

CUmemGenericAllocationHandle Claim::created(std::size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = on_device();
  require(cu->MemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
  return handle;
}

CUdeviceptr Claim::reserved(std::size_t bytes) {
  CUdeviceptr at = 0;
  require(cu->MemAddressReserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
  return at;
}

CUresult Claim::give_access(CUdeviceptr at, std::size_t bytes) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return cu->MemSetAccess(at, bytes, &access, 1);
}

CUdeviceptr Claim::mapped(std::size_t bytes) {
  const CUmemGenericAllocationHandle handle = created(bytes);
  const CUdeviceptr at = reserved(bytes);
  require(cu->MemMap(at, bytes, 0, handle, 0), "cuMemMap");
  require(cu->MemRelease(handle), "cuMemRelease");
  require(give_access(at, bytes), "cuMemSetAccess");
  return at;
}

unsigned char* Claim::locked(std::size_t bytes, int value) {
  void* at = nullptr;
  require(cu->MemHostAlloc(&at, bytes, 0), "cuMemHostAlloc");
  locked_.push_back(at);
  std::memset(at, value, bytes);
  return static_cast<unsigned char*>(at);
}

CUdeviceptr Claim::allocated(std::size_t bytes) {
  CUdeviceptr at = 0;
  require(cu->MemAlloc(&at, bytes), "cuMemAlloc");
  allocations_.push_back(at);
  return at;
}

CUstream Claim::stream(unsigned flags) {
  CUstream made = nullptr;
  require(cu->StreamCreate(&made, flags), "cuStreamCreate");
  streams_.push_back(made);
  return made;
}

CUevent Claim::event(unsigned flags) {
  CUevent made = nullptr;
  require(cu->EventCreate(&made, flags), "cuEventCreate");
  events_.push_back(made);
  return made;
}

int Claim::byte_at(CUdeviceptr at) {
  unsigned char byte = 0;
  require(cu->MemcpyDtoH(&byte, at, 1), "cuMemcpyDtoH");
  return byte;
}

}  // namespace conformance
