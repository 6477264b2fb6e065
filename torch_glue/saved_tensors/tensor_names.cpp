// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/tensor_names.h"

#include "torch_glue/compat.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

namespace spillway {
namespace {

/// By the identity of a tensor's version counter, which it keeps when it gets other memory. The
/// counters are held, so that no other has the identity of one that is here.
struct Names {
  std::mutex mutex;
  std::map<const void*, std::pair<c10::VariableVersion, std::string>> all;
  std::size_t lived = 0;  // when those of tensors that had gone were dropped last
};

Names& names() {
  static auto* const names = new Names;  // a thread may raise while the process exits
  return *names;
}

}  // namespace

void name_tensor(const at::Tensor& tensor, const std::string& name) {
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  if (!counter.enabled()) return;
  Names& known = names();
  const std::lock_guard lock(known.mutex);
  known.all[compat::counter_identity(counter)] = {counter, name};
  if (known.all.size() <= 2 * known.lived + 64) return;
  std::erase_if(known.all, [](const auto& each) { return each.second.first.unique(); });
  known.lived = known.all.size();
}

std::string name_of(const c10::VariableVersion& counter) {
  Names& known = names();
  const std::lock_guard lock(known.mutex);
  const auto found = known.all.find(compat::counter_identity(counter));
  return found == known.all.end() ? std::string() : found->second.second;
}

}  // namespace spillway
