// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/recomputed_storage.h"

#include "allocator/base/pooled.h"
#include "allocator/driver/span_log.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/saved_storage/budget.h"
#include "torch_glue/saved_storage/region_options.h"
#include "torch_glue/saved_storage/storage_table.h"
#include "torch_glue/saved_tensors/again.h"
#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/operator_calls.h"
#include "torch_glue/saved_tensors/recomputed_results.h"
#include "torch_glue/saved_tensors/rules.h"

#include <ATen/Functions.h>
#include <c10/cuda/CUDAGuard.h>

#include <mutex>
#include <utility>

namespace spillway {
namespace {

/// Times the recomputation of a storage if its step is recorded.
class TimedRecompute {
 public:
  TimedRecompute(DeviceRuntime& device, std::size_t storage)
      : device_(device.device()),
        stream_(stream_of(current_stream(device_.id))),
        begun_(
            driver::SpanLog::instance().begin(device_, stream_, driver::Span::Kind::kRecompute)) {
    begun_.span.storage = storage;
  }

  ~TimedRecompute() { driver::SpanLog::instance().end(device_, stream_, begun_); }

  TimedRecompute(const TimedRecompute&) = delete;
  TimedRecompute& operator=(const TimedRecompute&) = delete;

 private:
  const driver::Device device_;
  const driver::Stream stream_;
  driver::SpanLog::Begun begun_;
};

/// Of a result that its own node saves, while the call runs.
std::unique_ptr<Recipe> recipe_of_own_result(const at::Tensor& whole, const RegionOptions& region) {
  const OperatorCall* const call = current_call().get();
  if (call == nullptr || call->has(*whole.storage().unsafeGetStorageImpl())) return nullptr;
  const auto number = call->repeated->number_of(whole);
  // The call may have written to an argument that it saves.
  if (!number || call->operands_changed()) return nullptr;
  return Recipe::of_call(*call, *number, region);
}

/// The recipe of the tensor's storage; null if it cannot be recomputed.
std::unique_ptr<Recipe> recipe_of(const at::Tensor& whole, const RegionOptions& region) {
  const auto& node = whole.grad_fn();
  if (node == nullptr) {
    auto recipe = recipe_of_own_result(whole, region);
    return recipe != nullptr ? std::move(recipe) : recipe_of_mask(whole);
  }
  const auto output = static_cast<std::uint32_t>(whole.output_nr());
  if (current_call() != nullptr && Rules::instance().find(*node, output) == nullptr &&
      call_of(*node) == nullptr) {
    if (auto recipe = recipe_of_own_result(whole, region)) return recipe;
  }
  // A recipe does not include in-place changes outside the graph. A node that saves its own result
  // does so right after computing it.
  if (whole._version() != version_of_result(*node, output) &&
      Rules::instance().saved_result(*node, output) == nullptr) {
    return nullptr;
  }
  return Recipe::of(*node, output, region);
}

/// The tensor that an operator computed together with this one's storage: its base, if it is a
/// view. A custom function computes views of tensors outside of the graph.
const at::Tensor& whole_of(const at::Tensor& tensor) {
  const at::Tensor* const base = compat::view_base(tensor);
  return base != nullptr && base->requires_grad() ? *base : tensor;
}

/// Whether steps on the tensor's device may keep everything (BudgetChooser::keep_unplanned).
bool has_job_budget(const at::Tensor& tensor) {
  const DeviceRuntime* const device =
      Runtime::instance().devices().if_made(DeviceId{tensor.device().index()});
  return device != nullptr && !device->budget().of_job().zero();
}

}  // namespace

std::shared_ptr<RecomputedStorage> RecomputedStorage::of(const at::Tensor& tensor,
                                                         const RegionOptions& region,
                                                         driver::Stream stream,
                                                         Examined& examined) {
  auto* const key = tensor.storage().unsafeGetStorageImpl();
  auto& table = StorageTable<RecomputedStorage>::instance();
  if (auto known = table.find(key)) {
    if (!known->version_.is(SavedVersion(tensor)) || !known->original()) return nullptr;
    examined.chain = known->chain();
    return known;
  }
  const at::Tensor& whole = whole_of(tensor);
  if (!is_whole(whole)) return nullptr;
  auto recipe = recipe_of(whole, region);
  if (recipe == nullptr) return nullptr;
  const Bytes size{whole.storage().nbytes()};
  if (recipe->should_end(size)) return nullptr;
  examined.chain = recipe->chain(size);
  Site site{region.tag};
  // Where the tensor that is saved instead exists already, it always pays, unless all has room.
  if (region.budget && (!recipe->save_substitute() || has_job_budget(whole))) {
    examined.decided = decide_recomputable(whole, region, stream);
    if (!examined.decided || !examined.decided->recompute) {
      examined.substitutes = recipe->substitutes();
      return nullptr;
    }
    site = examined.decided->site;
  }
  auto made = make_pooled<RecomputedStorage>(whole, std::move(recipe), site);
  table.put(key, made);
  Runtime::instance().step().left_to_recompute(region.tag, made->size_);
  return made;
}

RecomputedStorage::RecomputedStorage(const at::Tensor& whole,
                                     std::unique_ptr<Recipe> recipe,
                                     Site site)
    : SharedStorage(whole.storage()),
      version_(whole),
      site_(site),
      device_(whole.device()),
      sizes_(whole.sizes()),
      strides_(whole.strides()),
      dtype_(whole.dtype()),
      recipe_(std::move(recipe)) {
  if (site_.watched) {
    runtime().curve().watch(site_.step, address_of(whole.storage()), site_.index, size_);
  }
}

RecomputedStorage::~RecomputedStorage() {
  StorageTable<RecomputedStorage>::instance().forget(key_);
  if (held_) before_release();
  if (site_.watched) runtime().curve().ended(site_.step, site_.index);
}

DeviceRuntime& RecomputedStorage::runtime() const {
  DeviceRuntime* const made = Runtime::instance().devices().if_made(DeviceId{device_.index()});
  TORCH_INTERNAL_ASSERT(made != nullptr);
  return *made;
}

SharedStorage::OnDevice RecomputedStorage::fetch(std::uint64_t& round, const ByteRange&) {
  if (!site_.watched) return {get_storage(round), Bytes{}};
  report_misses_after_backward();
  const bool first = !used_.exchange(true);
  c10::Storage storage = get_storage(round);
  on_access(runtime(), site_);
  if (first) on_first_use(runtime(), site_, c10::cuda::getCurrentCUDAStream(device_.index()));
  return {std::move(storage), Bytes{}};
}

c10::Storage RecomputedStorage::get_storage(std::uint64_t& round) {
  if (auto alive = original()) return c10::Storage(std::move(alive));
  const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
  {
    const LightLock lock(mutex_);
    if (held_ && stream_ == stream) return take_held(round);
  }
  // Without the lock: a custom function needs Python's lock, and a thread that waits for this one
  // may hold that.
  c10::Storage made = remake();
  Runtime::instance().step().recomputed(site_.tag, size_);
  const LightLock lock(mutex_);
  if (!held_) {
    hold(std::move(made));
    stream_ = stream;
    if (site_.watched) RecomputedResults::instance().add(site_, shared_from_this());
  }
  // A result computed on another stream is kept for later uses there.
  return stream_ == stream ? take_held(round) : made;
}

c10::Storage RecomputedStorage::take_held(std::uint64_t& round) {
  c10::Storage held = held_;
  has_seen(round);
  return held;
}

Bytes RecomputedStorage::reclaim() {
  c10::Storage released;
  if (!mutex_.try_lock()) return {};
  const std::unique_lock<LightMutex> lock(mutex_, std::adopt_lock);
  if (!held_ || compat::holders(held_, *held_.unsafeGetStorageImpl()) > 1) return {};
  before_release();
  released = std::move(held_);
  return size_;
}

void RecomputedStorage::before_release() {
  if (site_.watched) RecomputedResults::instance().remove(site_);
}

at::Tensor RecomputedStorage::run_again() const {
  try {
    return recipe_->run();
  } catch (c10::Error& error) {
    error.add_context(c10::str("Spillway release a tensor of shape ",
                               at::IntArrayRef(sizes_),
                               " and computes it again (",
                               recipe_->made_by(),
                               "): what that needs, parameters too, must stay as it is until the "
                               "backward pass is over"));
    throw;
  }
}

c10::Storage RecomputedStorage::remake() {
  const InternalOpsGuard unseen;
  const c10::cuda::OptionalCUDAGuard guard(device_);
  const TagScope tag(site_.tag);
  std::optional<TimedRecompute> timed;
  if (site_.watched) timed.emplace(runtime(), site_.index);
  const RecomputeGuard computing(site_.watched ? std::optional(site_) : std::nullopt);
  const std::size_t since = site_.watched ? runtime().curve().event() : 0;
  at::Tensor made = run_again();
  TORCH_CHECK(made.sizes().equals(sizes_) && made.dtype() == dtype_ && made.device() == device_,
              "Spillway: recomputation returned another tensor than the forward pass: ",
              made.sizes(),
              " of ",
              made.dtype().name(),
              " instead of ",
              at::IntArrayRef(sizes_),
              " of ",
              dtype_.name(),
              ". If its operator depends on state of its own, set recompute=False.");
  if (!made.strides().equals(strides_) || !is_whole(made)) {
    const at::Tensor laid_out = at::empty_strided(sizes_, strides_, made.options());
    laid_out.copy_(made);
    made = laid_out;
  }
  if (site_.watched) {
    AllocationCurve& curve = runtime().curve();
    curve.present(site_.step, site_.index);
    curve.computed(site_.step, site_.index, since);
    curve.watch(site_.step, address_of(made.storage()), site_.index, size_);
  }
  return made.storage();
}

}  // namespace spillway
