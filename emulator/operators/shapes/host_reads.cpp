// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/shapes/host_reads.h"

#include "emulator/operators/observer.h"
#include "emulator/operators/shapes/assumed_values.h"

#include <ATen/ATen.h>
#include <ATen/ops/_local_scalar_dense_cuda_dispatch.h>
#include <c10/util/flat_hash_map.h>

#include <bit>
#include <locale>
#include <mutex>
#include <sstream>

namespace spillway::operators {
namespace {

/// More steps than a dry run takes, and seconds of a loop that only polls.
constexpr int kMax = 100000;

struct Reads {
  uint64_t bits = 0;
  int count = 0;
};

/// The number of consecutive reads of these bits at a location of the program.
int reads_of(const char* location, uint64_t bits) {
  static auto* const mutex = new std::mutex;
  static auto* const by_location = new ska::flat_hash_map<const char*, Reads>;
  const std::scoped_lock lock(*mutex);
  Reads& reads = (*by_location)[location];
  if (reads.bits != bits) reads = {bits, 0};
  return ++reads.count;
}

uint64_t bits_of(const at::Scalar& value) {
  return std::bit_cast<uint64_t>(value.isComplex() ? value.toComplexDouble().real()
                                                   : value.toDouble());
}

void count(const at::Scalar& value) {
  const char* location = python_location();
  if (reads_of(location, bits_of(value)) < kMax) return;
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << value;
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "aten::_local_scalar_dense: ",
                              location == nullptr ? "the program" : location,
                              " has read the value ",
                              text.str(),
                              " ",
                              kMax,
                              " times. A dry run computes no values: a loop that waits for another "
                              "one never ends. Pass the value to read, as --assume value=NUMBER or "
                              "finite=0, end earlier with --steps=N, or use spillway emulate.");
}

at::Scalar scalar_of(at::ScalarType type, double value) {
  if (type == at::kBool) return value != 0;
  if (c10::isIntegralType(type, /*includeBool=*/false)) return static_cast<int64_t>(value);
  return value;
}

at::Scalar item(const at::Tensor& self) {
  at::Scalar value = at::cuda::_local_scalar_dense(self);
  if (const auto known = remembered_value(self)) value = scalar_of(self.scalar_type(), *known);
  count(value);
  return value;
}

}  // namespace

c10::KernelFunction counted_item() {
  return c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(item));
}

void count_read(const at::Tensor& element) {
  count(at::_local_scalar_dense(element));
}

}  // namespace spillway::operators
