// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/model_state_share.h"

namespace spillway {

void ModelStateShare::add(const HeapBlockInfo& block, bool stays) {
  added_ += block.size.count();
  if (need_ != 0 && stays) curve_.became_model_state(block.at.address(), block.size);
  if (need_ != 0 && !stays) curve_.died(block.at.address(), block.size);
  change(block.size.count());
}

void ModelStateShare::change(std::uint64_t bytes) {
  const std::uint64_t now = bytes_.fetch_add(bytes) + bytes;
  curve_.set_model_state(need_ == 0 ? Bytes{} : Bytes{now});
}

void ModelStateShare::begin_step(const ModelStateTerms& terms) {
  need_ = terms.bytes.count();
  streams_ = terms.streams;
  change(0);
  const LightLock lock(mutex_);
  plan_known_ = false;
  leaves_.clear();
}

void ModelStateShare::set_share(std::optional<Bytes> share, bool stays) {
  const std::uint64_t bytes = share ? share->count() : kNoShare;
  share_stays_ = stays;
  if (share_.exchange(bytes) != bytes) added_ = 0;
}

void ModelStateShare::set_plan(const std::vector<ModelStateLeave>& leaves) {
  const LightLock lock(mutex_);
  if (plan_known_.exchange(true)) return;
  for (const ModelStateLeave& each : leaves)
    leaves_.emplace(each.storage, each.after);
}

bool ModelStateShare::leaves_after(std::uint64_t storage, std::size_t uses) const {
  const LightLock lock(mutex_);
  return leaves_.contains({storage, uses});
}

bool ModelStateShare::exceeds_share() const {
  return saturating_sub(Bytes{bytes_}, Bytes{added_}).count() > share_;
}

}  // namespace spillway
