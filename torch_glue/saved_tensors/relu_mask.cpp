// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/relu_mask.h"

#include "allocator/base/pooled.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/saved_storage/budget.h"
#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_tensors/again.h"
#include "torch_glue/saved_tensors/pack_hook.h"
#include "torch_glue/saved_tensors/recipe.h"
#include "torch_glue/saved_tensors/recomputed_storage.h"

#include <ATen/Functions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <exception>
#include <utility>
#include <vector>

namespace spillway {
namespace {

constexpr std::int64_t kBits = 8;
/// Maximum number of results that wait on a thread; the earliest one is settled to make room.
constexpr std::size_t kMaxWaiting = 32;

thread_local std::vector<std::weak_ptr<ReluMask>> waiting;

/// The elements of a dense tensor in the order of its memory.
at::Tensor flat(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1}, dense.storage_offset());
}

/// Bit i of byte k is set if element 8k + i is at most zero; not set for NaN.
at::Tensor bits_of(const at::Tensor& dense) {
  const std::int64_t count = dense.numel();
  const std::int64_t bytes = (count + kBits - 1) / kBits;
  // One byte per element, eight of them a number. Its product with 2^56 + 2^49 + … + 2^7 has the
  // lowest bit of byte i at 56 + i, and no two bits at one position.
  at::Tensor flags = at::zeros({bytes * kBits}, dense.options().dtype(at::kByte));
  flags.narrow(0, 0, count).copy_(at::le(flat(dense), 0));
  flags.view(at::kLong).mul_(std::int64_t{0x0102040810204080});
  return flags.view({bytes, kBits}).select(1, kBits - 1).clone(at::MemoryFormat::Contiguous);
}

/// By another hook, which keeps or offloads its storage.
bool is_saved_elsewhere(const at::Tensor& tensor) {
  return SavedStorage::find(tensor.storage()) != nullptr;
}

/// Creates a tensor like `dense` from its bits: 0 where the bit is set, else 1.
std::unique_ptr<Recipe> recipe_of_bits(const at::Tensor& dense) {
  const InternalOpsGuard unseen;
  return Recipe::of_nothing([bits = bits_of(dense),
                             sizes = at::DimVector(dense.sizes()),
                             strides = at::DimVector(dense.strides()),
                             options = dense.options()](Recipe::Values) {
    // Byte i of a number keeps bit i.
    const at::Tensor spread = bits.to(at::kLong)
                                  .mul_(std::int64_t{0x0101010101010101})
                                  .bitwise_and_(static_cast<std::int64_t>(0x8040201008040201ULL));
    const at::Tensor made = at::empty_strided(sizes, strides, options);
    const at::Tensor all = flat(made);
    all.copy_(at::eq(spread.view(at::kByte).narrow(0, 0, all.numel()), 0));
    return made;
  });
}

}  // namespace

std::shared_ptr<ReluMask> ReluMask::of(const at::Tensor& tensor, const RegionOptions& region) {
  const auto* const relu =
      dynamic_cast<const torch::autograd::generated::ReluBackward0*>(tensor.grad_fn().get());
  // Its own node saves it first, before the result exists.
  if (relu == nullptr || !compat::never_saved(relu->result_) || !is_whole(tensor)) return nullptr;
  if (is_saved_elsewhere(tensor)) return nullptr;
  auto mask = std::make_shared<ReluMask>(tensor, region);
  if (waiting.size() >= kMaxWaiting) {
    if (const auto earliest = waiting.front().lock()) earliest->settle(true);
    waiting.erase(waiting.begin());
  }
  waiting.push_back(mask);
  return mask;
}

ReluMask::ReluMask(const at::Tensor& result, const RegionOptions& region)
    : region_(region),
      stream_(c10::cuda::getCurrentCUDAStream(result.device().index())),
      result_(result.unsafeGetTensorImpl()->shallow_copy_and_detach(
          result.unsafeGetTensorImpl()->version_counter(), false)) {}

bool ReluMask::settle(bool at_once) {
  try {
    const Lock lock(mutex_);
    if (handle_ != nullptr) return true;
    const c10::Storage& storage = result_.storage();
    const bool known = is_saved_elsewhere(result_);
    const bool alone = !known && compat::holders(storage, *storage.unsafeGetStorageImpl()) == 1;
    if (alone && keep_bits()) return true;
    if (!at_once && !known) return false;
    keep_whole();
  } catch (const std::exception& error) {
    static_cast<void>(error);
  }
  return true;
}

bool ReluMask::keep_bits() {
  const driver::Stream stream = stream_of(stream_);
  const bool here = c10::cuda::getCurrentCUDAStream(stream_.device_index()) == stream_;
  if (!here || capture_skip_reason(stream)) return false;
  Site site{region_.tag};
  std::optional<Decision> decided;
  if (region_.budget) {
    decided = decide_recomputable(result_, region_, stream);
    if (!decided || !decided->recompute) {
      keep_whole(decided ? &*decided : nullptr);
      return true;
    }
    site = decided->site;
  }
  std::unique_ptr<Recipe> recipe;
  try {
    recipe = recipe_of_bits(result_);
  } catch (const c10::OutOfMemoryError& error) {
    static_cast<void>(error);  // keeping it is always correct
    keep_whole(decided ? &*decided : nullptr);
    return true;
  }
  auto recomputed = make_pooled<RecomputedStorage>(result_, std::move(recipe), site);
  Runtime::instance().step().left_to_recompute(region_.tag, Bytes{result_.storage().nbytes()});
  handle_ = PackHook::of_recomputed(result_, std::move(recomputed));
  result_.reset();
  bits_ = true;
  return true;
}

void ReluMask::keep_whole(const Decision* decided) {
  // A copy must be ordered after the result's computation.
  const c10::cuda::CUDAStreamGuard guard(stream_);
  auto handle = make_pooled<PackHook>(&region_);
  if (decided != nullptr) {
    handle->pack_as_decided(result_, stream_of(stream_), *decided);
  } else {
    handle->pack(result_);  // other waiting results may wait for this one's lock
  }
  handle_ = std::move(handle);
  result_.reset();
}

at::Tensor ReluMask::get() {
  std::shared_ptr<PackHook> handle;
  {
    const Lock lock(mutex_);
    if (handle_ == nullptr) return result_;
    handle = handle_;
  }
  return handle->unpack();  // without the lock: it may be recomputed
}

std::shared_ptr<PackHook> ReluMask::share() {
  const Lock lock(mutex_);
  if (bits_) return nullptr;
  if (handle_ == nullptr) keep_whole();
  return handle_->share();
}

void settle_relu_masks(bool all) {
  if (waiting.empty()) return;
  // Settling packs results, too.
  auto each = std::exchange(waiting, {});
  std::erase_if(each, [all](const std::weak_ptr<ReluMask>& one) {
    const auto mask = one.lock();
    return mask == nullptr || mask->settle(all);
  });
  waiting.insert(waiting.end(), each.begin(), each.end());
}

}  // namespace spillway
