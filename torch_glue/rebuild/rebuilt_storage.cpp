// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/rebuild/rebuilt_storage.h"

#include "allocator/base/pooled.h"
#include "allocator/driver/span_log.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/rebuild/again.h"
#include "torch_glue/rebuild/operand_notes.h"
#include "torch_glue/rebuild/rules.h"
#include "torch_glue/saved_tensors/budget.h"
#include "torch_glue/saved_tensors/region_options.h"
#include "torch_glue/saved_tensors/storage_table.h"
#include "torch_glue/streams.h"

#include <ATen/Functions.h>
#include <c10/cuda/CUDAGuard.h>

#include <utility>

namespace spillway {
namespace {

std::uint64_t address_of(const void* data) {
  return driver::DevicePtr(data).address();
}

/// Times what computes a storage again, where its step is recorded.
class TimedRebuild {
 public:
  TimedRebuild(DeviceRuntime& device, std::size_t storage)
      : device_(device.device()),
        stream_(stream_of(current_stream(device_.id))),
        begun_(driver::SpanLog::instance().begin(device_, stream_, driver::Span::Kind::kRebuild)) {
    begun_.span.storage = storage;
  }

  ~TimedRebuild() { driver::SpanLog::instance().end(device_, stream_, begun_); }

  TimedRebuild(const TimedRebuild&) = delete;
  TimedRebuild& operator=(const TimedRebuild&) = delete;

 private:
  const driver::Device device_;
  const driver::Stream stream_;
  driver::SpanLog::Begun begun_;
};

/// What made the tensor's storage runs again; null where it cannot.
std::unique_ptr<Recipe> recipe_of(const at::Tensor& whole, const RegionOptions& region) {
  const auto& node = whole.grad_fn();
  if (node == nullptr) return recipe_of_mask(whole);
  const auto output = static_cast<std::uint32_t>(whole.output_nr());
  // A change in place that no graph has seen is not in the recipe. A node that saves its own result
  // does so right after it has computed it.
  if (whole._version() != version_of_result(*node) &&
      Rules::instance().saved_result(*node, output) == nullptr) {
    return nullptr;
  }
  return Recipe::of(*node, output, region);
}

}  // namespace

std::shared_ptr<RebuiltStorage> RebuiltStorage::of(const at::Tensor& tensor,
                                                   const RegionOptions& region,
                                                   driver::Stream stream,
                                                   std::optional<Decision>& decided,
                                                   int& chain) {
  auto* const key = tensor.storage().unsafeGetStorageImpl();
  auto& table = StorageTable<RebuiltStorage>::instance();
  if (auto known = table.find(key)) {
    const bool same = known->version_.is(SavedVersion(tensor)) && known->original();
    return same ? std::move(known) : nullptr;
  }
  const at::Tensor* const base = compat::view_base(tensor);
  const at::Tensor& whole = base != nullptr ? *base : tensor;
  if (!is_whole(whole)) return nullptr;
  auto recipe = recipe_of(whole, region);
  if (recipe == nullptr) return nullptr;
  Site site{region.tag};
  // What is saved in its place is there already.
  if (region.budget && !recipe->saves_instead()) {
    decided = decide_rebuildable(whole, region, stream);
    chain = recipe->chain() + 1;
    if (!decided || !decided->rebuild) return nullptr;
    site = decided->site;
  }
  auto made = make_pooled<RebuiltStorage>(whole, std::move(recipe), site);
  table.put(key, made);
  Runtime::instance().left_to_rebuild(region.tag, Bytes{made->size_});
  return made;
}

RebuiltStorage::RebuiltStorage(const at::Tensor& whole, std::unique_ptr<Recipe> recipe, Site site)
    : source_(whole.storage().getWeakStorageImpl()),
      key_(whole.storage().unsafeGetStorageImpl()),
      data_(whole.storage().data()),
      size_(whole.storage().nbytes()),
      version_(whole),
      site_(site),
      device_(whole.device()),
      sizes_(whole.sizes()),
      strides_(whole.strides()),
      dtype_(whole.dtype()),
      recipe_(std::move(recipe)) {
  if (site_.watched) runtime().curve().watch(site_.step, address_of(data_), site_.index);
}

RebuiltStorage::~RebuiltStorage() {
  StorageTable<RebuiltStorage>::instance().forget(key_);
  if (site_.watched) runtime().curve().present(site_.step, site_.index);
}

DeviceRuntime& RebuiltStorage::runtime() const {
  DeviceRuntime* const made = Runtime::instance().device_if_made(DeviceId{device_.index()});
  TORCH_INTERNAL_ASSERT(made != nullptr);
  return *made;
}

void RebuiltStorage::hook_came(std::uint64_t& round) {
  const LightLock lock(mutex_);
  ++hooks_;
  round = round_;
}

void RebuiltStorage::hook_gone(std::uint64_t round) {
  const LightLock lock(mutex_);
  --hooks_;
  if (round != round_) one_waits_less();
}

void RebuiltStorage::one_waits_less() {
  if (--waiting_ <= 0) held_ = c10::Storage();
}

c10::Storage RebuiltStorage::original() const {
  auto alive = source_.lock();
  const bool same = alive && alive->data() == data_ && alive->nbytes() == size_;
  return same ? c10::Storage(std::move(alive)) : c10::Storage();
}

c10::Storage RebuiltStorage::get(std::uint64_t& round) {
  if (!site_.watched) return get_storage(round);
  tell_misses_after_backward();
  const bool first = !used_.exchange(true);
  c10::Storage storage = get_storage(round);
  asked_in_step(runtime(), site_);
  if (first) wanted_in_step(runtime(), site_, c10::cuda::getCurrentCUDAStream(device_.index()));
  return storage;
}

c10::Storage RebuiltStorage::get_storage(std::uint64_t& round) {
  if (auto alive = original()) return alive;
  const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
  const LightLock lock(mutex_);
  if (!held_ || stream_ != stream) {
    // What another stream has made is held for those who follow there.
    const bool elsewhere = static_cast<bool>(held_);
    c10::Storage made = make_again();
    Runtime::instance().rebuilt(site_.tag, Bytes{size_});
    if (elsewhere) return made;
    held_ = std::move(made);
    stream_ = stream;
    waiting_ = hooks_;
    ++round_;
  }
  c10::Storage made = held_;
  if (round != round_) {
    round = round_;
    one_waits_less();
  }
  return made;
}

at::Tensor RebuiltStorage::run_again() const {
  try {
    return recipe_->run();
  } catch (c10::Error& error) {
    error.add_context(c10::str("Spillway let go of a tensor of shape ",
                               at::IntArrayRef(sizes_),
                               " and computes it again (",
                               recipe_->made_by(),
                               "): what that needs, parameters too, must stay as it is until the "
                               "backward pass is over"));
    throw;
  }
}

c10::Storage RebuiltStorage::make_again() {
  const Unseen unseen;
  const c10::cuda::OptionalCUDAGuard guard(device_);
  const TagScope tag(site_.tag);
  std::optional<TimedRebuild> timed;
  if (site_.watched) timed.emplace(runtime(), site_.index);
  const ComputingAgain computing(site_.watched ? std::optional(site_) : std::nullopt);
  const std::size_t since = site_.watched ? runtime().curve().place() : 0;
  at::Tensor made = run_again();
  TORCH_CHECK(made.sizes().equals(sizes_) && made.dtype() == dtype_ && made.device() == device_,
              "Spillway: an operator gave another tensor when it ran again: ",
              made.sizes(),
              " of ",
              made.dtype().name(),
              " instead of ",
              at::IntArrayRef(sizes_),
              " of ",
              dtype_.name());
  if (!made.strides().equals(strides_) || !is_whole(made)) {
    const at::Tensor laid_out = at::empty_strided(sizes_, strides_, made.options());
    laid_out.copy_(made);
    made = laid_out;
  }
  if (site_.watched) {
    LiveCurve& curve = runtime().curve();
    curve.present(site_.step, site_.index);
    curve.computed(site_.step, site_.index, since);
    curve.watch(site_.step, address_of(made.storage().data()), site_.index);
  }
  return made.storage();
}

}  // namespace spillway
