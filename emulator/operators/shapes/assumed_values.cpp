// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/shapes/assumed_values.h"

#include "emulator/operators/accesses.h"
#include "emulator/operators/aliasing.h"
#include "emulator/operators/runtime.h"
#include "emulator/operators/shapes/shape_rules.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <mutex>

namespace spillway::operators {
namespace {

template <size_t kCount>
bool is_one_of(std::string_view name, const std::array<std::string_view, kCount>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Data about storages, until they are destroyed.
template <class Value>
class Known {
 public:
  std::optional<Value> find(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return std::nullopt;
    const std::scoped_lock lock(mutex_);
    const auto found = entries_.find(tensor.storage().unsafeGetStorageImpl());
    if (found == entries_.end()) return std::nullopt;
    if (found->second.storage.expired()) {
      entries_.erase(found);
      return std::nullopt;
    }
    return found->second.value;
  }

  void put(const at::Tensor& tensor, Value value) {
    const c10::Storage& storage = tensor.storage();
    const std::scoped_lock lock(mutex_);
    if (entries_.size() >= kMany) forget_ended();
    entries_.insert_or_assign(
        storage.unsafeGetStorageImpl(),
        Entry{c10::weak_intrusive_ptr<c10::StorageImpl>(storage.getWeakStorageImpl()), value});
  }

 private:
  static constexpr size_t kMany = 1024;

  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Value value;
  };

  void forget_ended() {
    for (auto each = entries_.begin(); each != entries_.end();) {
      each = each->second.storage.expired() ? entries_.erase(each) : std::next(each);
    }
  }

  std::mutex mutex_;
  ska::flat_hash_map<const c10::StorageImpl*, Entry> entries_;
};

/// The value of every element of a large result. Never destroyed: tensors outlive statics.
Known<double>& known() {
  static auto* const values = new Known<double>;
  return *values;
}

/// The bytes of a large storage that hold a small result. Never destroyed, as above.
Known<Extent>& filled() {
  static auto* const extents = new Known<Extent>;
  return *extents;
}

/// Writes to inference tensors are not detected: they have no version.
bool is_written(const at::Tensor& tensor) {
  return !tensor.is_inference() && tensor._version() != 0;
}

std::optional<double> value_of(const c10::IValue& argument) {
  const bool is_tensor = argument.isTensor() && argument.toTensor().defined();
  return is_tensor ? remembered_value(argument.toTensor()) : std::nullopt;
}

/// Comparisons by which PyTorch implements isinf and isfinite: with infinity, and of a number with
/// itself.
std::optional<bool> asks_for_finite(std::string_view name, c10::ArrayRef<c10::IValue> arguments) {
  const bool equal = name == "aten::eq";
  if ((!equal && name != "aten::ne") || arguments.size() < 2) return std::nullopt;
  const c10::IValue& other = arguments[1];
  if (other.isTensor()) {
    const bool itself = other.toTensor().is_same(arguments[0].toTensor());
    return itself ? std::optional(equal) : std::nullopt;
  }
  return other.isDouble() && std::isinf(other.toDouble()) ? std::optional(!equal) : std::nullopt;
}

double share(const at::Tensor& whole, const at::Tensor& result) {
  return static_cast<double>(whole.numel()) /
         static_cast<double>(std::max<int64_t>(1, result.numel()));
}

constexpr std::array<std::string_view, 3> kAnd = {
    "aten::bitwise_and", "aten::logical_and", "aten::mul"};
constexpr std::array<std::string_view, 2> kOr = {"aten::bitwise_or", "aten::logical_or"};
constexpr std::array<std::string_view, 2> kNot = {"aten::bitwise_not", "aten::logical_not"};
constexpr std::array<std::string_view, 6> kSame = {
    "aten::all", "aten::amax", "aten::amin", "aten::any", "aten::max", "aten::min"};
constexpr std::array<std::string_view, 2> kCounts = {"aten::count_nonzero", "aten::sum"};

}  // namespace

std::optional<double> assumed_everywhere(std::string_view name,
                                         c10::ArrayRef<c10::IValue> arguments,
                                         const at::Tensor& result) {
  const double finite = emulated_runtime().assumed.finite;
  name = name.substr(0, name.find('.'));
  if (name == "aten::isinf" || name == "aten::isnan") return 1 - finite;
  if (name == "aten::isfinite") return finite;
  if (const auto whether = asks_for_finite(name, arguments)) {
    return *whether ? finite : 1 - finite;
  }
  const auto value = arguments.empty() ? std::nullopt : value_of(arguments[0]);
  if (!value) return std::nullopt;
  if (is_one_of(name, kSame)) return value;
  if (is_one_of(name, kCounts)) return *value * share(arguments[0].toTensor(), result);
  if (is_one_of(name, kNot) && result.scalar_type() == at::kBool) return 1 - *value;
  const auto other = arguments.size() < 2 ? std::nullopt : value_of(arguments[1]);
  if (other && is_one_of(name, kAnd)) return *value * *other;
  if (other && is_one_of(name, kOr)) return std::max(*value, *other);
  return std::nullopt;
}

void remember_value(const at::Tensor& result, double value) {
  known().put(result, value);
}

std::optional<double> remembered_value(const at::Tensor& tensor) {
  return is_written(tensor) ? std::nullopt : known().find(tensor);
}

double assumed_value(std::string_view name, const at::Tensor& result) {
  const spillway_emulator_assumptions& assumed = emulated_runtime().assumed;
  const bool info = name.starts_with("aten::linalg") || name.starts_with("aten::_linalg");
  name = name.substr(0, name.find('.'));
  constexpr std::array<std::string_view, 4> kNone = {
      "aten::any", "aten::argmax", "aten::argmin", "aten::isin"};
  if (is_one_of(name, kNone)) return 0;
  if (!result.is_floating_point()) return info ? 0 : assumed.value;
  return assumed.finite == 0 ? std::numeric_limits<double>::quiet_NaN() : assumed.value;
}

void fill_small(const at::Tensor& tensor, double value) {
  const c10::impl::ExcludeDispatchKeyGuard below(
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset);
  const c10::Storage& storage = tensor.storage();
  const c10::Storage bytes(c10::Storage::use_byte_size_t(),
                           storage.nbytes(),
                           at::DataPtr(address(storage), at::Device(at::kCPU)),
                           c10::GetCPUAllocator(),
                           /*resizable=*/false);
  shaped(bytes, tensor, c10::DispatchKey::CPU).fill_(value);
  note_filled(tensor);
}

void note_filled(const at::Tensor& tensor) {
  if (tensor.storage().nbytes() > kSmallBytes) filled().put(tensor, extent_of(tensor));
}

bool is_known(const at::Tensor& tensor) {
  return tensor.storage().nbytes() <= kSmallBytes || is_filled(tensor);
}

bool is_filled(const at::Tensor& tensor) {
  if (tensor.storage().nbytes() <= kSmallBytes) return false;
  const auto written = filled().find(tensor);
  if (!written) return false;
  const Extent read = extent_of(tensor);
  const auto* const begin = static_cast<const std::byte*>(written->at);
  const auto* const first = static_cast<const std::byte*>(read.at);
  return first >= begin && first + read.bytes <= begin + written->bytes;
}

}  // namespace spillway::operators
