// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/observer.h"

#include "emulator/operators/accesses.h"
#include "emulator/operators/installation.h"
#include "emulator/operators/lists.h"
#include "emulator/operators/program_locations.h"
#include "emulator/operators/runtime.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <cstring>

namespace spillway::operators {
namespace {

/// Properties of an operator that the CPU runs.
struct HostOperator {
  const char* name = "";
  const char* plain_name = "";  // without the overload
  bool touches = false;
  std::vector<bool> written;
};

struct State {
  const char* name = nullptr;  // of the outermost operator that runs
  const char* location = nullptr;
  const char* forward = nullptr;  // the location of the backward node that runs here
  int depth = 0;                  // of operators inside operators
};

thread_local State state;

/// The thread's state before the running operator or node; restored at its end.
struct Outer final : at::ObserverContext {
  State before = state;
};

/// Program locations of forward operators, for their backward nodes: the newest ones, by thread and
/// sequence number. A collision only causes a wrong line in a report's text.
std::array<std::atomic<const char*>, 1U << 16U> forward_locations;

std::atomic<const char*>& forward_slot(uint64_t thread, int64_t sequence) {
  const uint64_t mixed = static_cast<uint64_t>(sequence) + thread * 7919;
  return forward_locations[mixed % forward_locations.size()];
}

void set_location(const char* location) {
  state.location = location;
  emulated_runtime().location(location);
}

HostOperator look_at(const at::RecordFunction& function) {
  HostOperator seen;
  const auto name = function.operator_name();
  if (!name) return seen;
  const auto op = c10::Dispatcher::singleton().findSchema(*name);
  const std::string text = c10::toString(*name);
  if (!op) return seen;
  seen.name = permanent_copy(text);
  seen.plain_name = permanent_copy(name->name);
  // PyTorch's own copy_ is not registered for the CPU, but for all devices.
  seen.touches = text == "aten::copy_" || text == "aten::_local_scalar_dense" ||
                 (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && !touches_no_bytes(text));
  seen.written = written_arguments(op->schema());
  return seen;
}

/// By thread, because a lock here would order the program's threads.
const HostOperator& known(const at::RecordFunction& function) {
  thread_local ska::flat_hash_map<const char*, HostOperator> seen;
  // An operator's name is its schema's own text. Other names may be at any address.
  const auto found = seen.find(function.name());
  if (found != seen.end() && std::strcmp(found->second.plain_name, function.name()) == 0) {
    return found->second;
  }
  return seen[function.name()] = look_at(function);
}

void report_host_accesses(const at::RecordFunction& function) {
  const HostOperator& op = known(function);
  const auto inputs = function.inputs();
  if (!op.touches || inputs.size() != op.written.size()) return;
  bool on_host = true;
  const auto each_tensor = [&](auto&& visit) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
        if (tensor.defined()) visit(tensor, op.written[i]);
      });
    }
  };
  each_tensor([&](const at::Tensor& tensor, bool) { on_host &= tensor.is_cpu(); });
  if (!on_host) return;
  each_tensor(
      [&](const at::Tensor& tensor, bool write) { report_host_access(tensor, write, op.name); });
}

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& function) {
  auto outer = state.depth == 0 ? std::make_unique<Outer>() : nullptr;
  if (state.depth++ == 0) {
    const char* here = python_location();
    set_location(here != nullptr ? here : state.forward);
    state.name = permanent_copy(function.name());
  }
  if (function.seqNr() >= 0) {
    forward_slot(at::RecordFunction::currentThreadId(), function.seqNr()).store(state.location);
  }
  if (emulated_runtime().checks) report_host_accesses(function);
  return outer;
}

std::unique_ptr<at::ObserverContext> backward_begins(const at::RecordFunction& function) {
  auto outer = std::make_unique<Outer>();
  const char* forward = forward_slot(function.forwardThreadId(), function.seqNr()).load();
  state.forward = forward == nullptr ? "a backward pass"
                                     : permanent_copy(std::string("backward of ") + forward);
  state.depth = 0;  // operators of a node in Python have locations of their own
  state.name = permanent_copy(function.name());
  set_location(state.forward);
  return outer;
}

void ends(const at::RecordFunction&, at::ObserverContext* context) {
  --state.depth;
  if (context == nullptr) return;
  state = static_cast<Outer*>(context)->before;
  set_location(state.location);
}

}  // namespace

CurrentOp doing_now() {
  return {state.name, state.location};
}

void observe_operators() {
  at::addGlobalCallback(at::RecordFunctionCallback(operator_begins, ends)
                            .needsInputs(emulated_runtime().checks)
                            .scopes({at::RecordScope::FUNCTION}));
  at::addGlobalCallback(at::RecordFunctionCallback(backward_begins, ends)
                            .scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

}  // namespace spillway::operators
