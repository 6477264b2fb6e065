// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/conformance/backend.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace conformance {

/// A claim about the CUDA driver, put to one backend in a context of device 0.
///
/// Checks with HOLDS and ANSWERS what should be true. A claim that a backend is known not to meet
/// is in the list of disagreements.cpp; it fails as soon as the backend meets it, so that the list
/// can only shrink.
class Claim : public testing::TestWithParam<Backend*> {
 protected:
  static constexpr std::size_t kChunk = 2U << 20U;

  void SetUp() override;
  void TearDown() override;

  void agree(bool holds, const std::string& what, int line);
  /// Fails the claim for good: what it stands on could not be made.
  void require(CUresult result, const char* what);

  /// Device memory that is made, mapped and given access at once; released with the claim.
  CUdeviceptr mapped(std::size_t bytes);
  CUdeviceptr reserved(std::size_t bytes);
  CUmemGenericAllocationHandle created(std::size_t bytes);
  CUresult give_access(CUdeviceptr at, std::size_t bytes);
  static CUmemAllocationProp on_device(int device = 0);

  /// Page-locked bytes of `value`; released with the claim.
  unsigned char* locked(std::size_t bytes, int value);
  CUdeviceptr allocated(std::size_t bytes);
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING);
  CUevent event(unsigned flags = CU_EVENT_DISABLE_TIMING);

  /// The first byte there, read with a synchronous copy.
  int byte_at(CUdeviceptr at);

  const Driver* cu = nullptr;

 private:
  [[nodiscard]] std::string name_of(CUresult result) const;

  std::vector<std::string> wrong_;
  std::vector<CUdeviceptr> allocations_;
  std::vector<void*> locked_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;

  friend void answers(Claim& claim, CUresult got, CUresult wanted, const char* call, int line);
};

void answers(Claim& claim, CUresult got, CUresult wanted, const char* call, int line);

/// Why a backend is known not to meet a claim ("Streams.AWaitTakesTheLatestRecord"), null where it
/// is expected to.
const char* known_disagreement(const std::string& backend, const std::string& claim);

}  // namespace conformance

#define HOLDS(condition) agree(static_cast<bool>(condition), #condition, __LINE__)
#define ANSWERS(call, result) answers(*this, (call), (result), #call, __LINE__)

/// A room of claims (a class of its own, or one made here), put to every backend.
#define CONFORMANCE_BACKENDS(room)                                                          \
  INSTANTIATE_TEST_SUITE_P(on,                                                              \
                           room,                                                            \
                           testing::Values(&conformance::emulated(), &conformance::real()), \
                           [](const testing::TestParamInfo<conformance::Backend*>& one) {   \
                             return std::string(one.param->name());                         \
                           })
#define CONFORMANCE(room)                    \
  class room : public conformance::Claim {}; \
  CONFORMANCE_BACKENDS(room)
