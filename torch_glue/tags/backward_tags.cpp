// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/tags/backward_tags.h"

#include "allocator/base/mutex.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/base/compat.h"

#include <ATen/SequenceNumber.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

namespace spillway {
namespace {

std::atomic<bool> roles{false};
std::atomic<TagId (*)()> callers_scope{nullptr};

/// Whether a tag is a role, and the role of allocations in its operations' backward pass.
struct Backward {
  bool scope;
  TagId role;
};

Backward backward_of(TagId tag) {
  thread_local std::unordered_map<TagId, Backward> known;
  const auto [found, fresh] = known.try_emplace(tag);
  if (fresh) {
    constexpr std::string_view kSaved = "activation/";
    const std::string name = tag_name(tag);
    const bool saved = name.compare(0, kSaved.size(), kSaved) == 0;
    found->second.scope = !is_role(name);
    found->second.role =
        intern_tag(saved ? "workspace/" + name.substr(kSaved.size()) : "workspace");
  }
  return found->second;
}

/// One running node: its scope and role, until it ends.
class NodeTags final : public at::ObserverContext {
 public:
  explicit NodeTags(const at::RecordFunction& node) {
    const TagId recorded = tag_at(node.forwardThreadId(), static_cast<std::uint64_t>(node.seqNr()));
    const Backward backward = backward_of(recorded);
    if (backward.scope) {
      scope_.emplace(recorded);
    } else if (current_scope() == TagId::kUntagged) {
      const auto ask = callers_scope.load(std::memory_order_relaxed);
      const TagId callers = ask == nullptr ? TagId::kUntagged : ask();
      if (callers != TagId::kUntagged) scope_.emplace(callers);
    }
    if (roles.load(std::memory_order_relaxed)) role_before_ = exchange_role(backward.role);
    note_tag();  // nodes that it creates itself, if the pass is differentiated again
  }

  ~NodeTags() override {
    if (role_before_) exchange_role(*role_before_);
    scope_.reset();
    note_tag();
  }

 private:
  std::optional<TagScope> scope_;
  std::optional<TagId> role_before_;
};

std::unique_ptr<at::ObserverContext> node_begins(const at::RecordFunction& node) {
  return std::make_unique<NodeTags>(node);
}

void node_ends(const at::RecordFunction&, at::ObserverContext*) {
  if (!roles.load(std::memory_order_relaxed)) return;
  static const TagId gradient = intern_tag("gradient");
  const auto node = torch::autograd::get_current_node();
  const auto* const sink = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get());
  if (sink != nullptr && sink->variable.grad().defined()) {
    set_tensor_role(sink->variable.grad(), gradient);
  }
}

DeviceRuntime* owner(const at::Tensor& tensor) {
  if (!tensor.is_cuda() || !tensor.has_storage()) return nullptr;
  DeviceRuntime* const device =
      Runtime::instance().devices().if_made(DeviceId{tensor.device().index()});
  return device != nullptr && device->heap().owns(driver::DevicePtr(tensor.storage().data()))
             ? device
             : nullptr;
}

}  // namespace

void follow_scopes_into_backward() {
  static std::once_flag once;
  std::call_once(once, [] {
    at::addGlobalCallback(at::RecordFunctionCallback(node_begins, node_ends)
                              .scopes({at::RecordScope::BACKWARD_FUNCTION}));
  });
}

void set_roles_in_backward(bool on) {
  roles.store(on, std::memory_order_relaxed);
}

void ask_for_callers_scope(TagId (*ask)()) {
  callers_scope.store(ask);
}

void set_tensor_role(const at::Tensor& tensor, TagId role) {
  if (DeviceRuntime* const device = owner(tensor)) {
    device->set_role(driver::DevicePtr(tensor.storage().data()), role);
  }
}

TagId tag_of(const at::Tensor& tensor) {
  DeviceRuntime* const device = owner(tensor);
  if (device == nullptr) return TagId::kUntagged;
  return device->heap().find(driver::DevicePtr(tensor.storage().data())).tag;
}

void set_workspace_roles() {
  static const TagId role = intern_tag("workspace/cublas");
  for (auto* const kept : {&at::cuda::cublas_handle_stream_to_workspace(),
                           &at::cuda::cublaslt_handle_stream_to_workspace()}) {
    const std::shared_lock lock(kept->mutex);
    for (const auto& each : kept->map) {
      const at::DataPtr& memory = compat::workspace_memory(each.second);
      DeviceRuntime* const device =
          Runtime::instance().devices().if_made(DeviceId{memory.device().index()});
      const driver::DevicePtr at(memory.get());
      if (device != nullptr && device->heap().owns(at)) device->set_role(at, role);
    }
  }
}

namespace {

constexpr std::size_t kMaxChanges = 16384;

class TagHistory {
 public:
  void note(std::uint64_t next, TagId tag) {
    const Lock lock(mutex_);
    while (!changes_.empty() && changes_.back().from >= next)
      changes_.pop_back();  // no node was created under it
    const TagId before = changes_.empty() ? TagId::kUntagged : changes_.back().tag;
    if (before == tag) return;
    if (changes_.size() == kMaxChanges) changes_.pop_front();
    changes_.push_back({next, tag});
  }

  TagId at(std::uint64_t number) {
    const Lock lock(mutex_);
    const auto after = std::upper_bound(
        changes_.begin(), changes_.end(), number, [](std::uint64_t wanted, const Change& change) {
          return wanted < change.from;
        });
    return after == changes_.begin() ? TagId::kUntagged : std::prev(after)->tag;
  }

 private:
  struct Change {
    std::uint64_t from;  // the first node under it
    TagId tag;
  };

  Mutex mutex_;
  std::deque<Change> changes_ SPILLWAY_GUARDED_BY(mutex_);
};

/// The timelines by thread. Those of ended threads stay, because graphs may query them: autograd
/// never reuses a thread's number.
class Timelines {
 public:
  static Timelines& instance() {
    static auto* const timelines = new Timelines;
    return *timelines;
  }

  std::shared_ptr<TagHistory> make(std::uint64_t thread) {
    const Lock lock(mutex_);
    auto& timeline = by_thread_[thread];
    if (!timeline) timeline = std::make_shared<TagHistory>();
    return timeline;
  }

  std::shared_ptr<TagHistory> find(std::uint64_t thread) {
    const Lock lock(mutex_);
    const auto found = by_thread_.find(thread);
    return found == by_thread_.end() ? nullptr : found->second;
  }

 private:
  Mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<TagHistory>> by_thread_
      SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace

void note_tag() {
  thread_local const std::shared_ptr<TagHistory> mine =
      Timelines::instance().make(at::RecordFunction::currentThreadId());
  mine->note(at::sequence_number::peek(), current_tag());
}

TagId tag_at(std::uint64_t thread, std::uint64_t number) {
  const auto timeline = Timelines::instance().find(thread);
  return timeline ? timeline->at(number) : TagId::kUntagged;
}

}  // namespace spillway
