// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/tags/backward_tags.h"

#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/tags/tag_timeline.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <atomic>
#include <mutex>
#include <optional>
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

}  // namespace spillway
