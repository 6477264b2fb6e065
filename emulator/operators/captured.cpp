// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/captured.h"

#include "emulator/operators/lists.h"
#include "emulator/operators/runtime.h"

#include <c10/cuda/CUDAException.h>

#include <cstdio>
#include <tuple>

namespace spillway::operators {
namespace {

/// CUDA tensors over the same addresses that keep nothing alive. Tensors that share a storage still
/// share one.
class Borrowing {
 public:
  c10::IValue operator()(const c10::IValue& value) {
    return map_tensors(value, [this](const at::Tensor& tensor) { return borrowed(tensor); });
  }

 private:
  at::Tensor borrowed(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) return tensor.clone();
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided && !tensor.is_nested(),
                                "the emulated GPU captures operators on strided tensors only. Use "
                                "others outside of the capture.");
    c10::Storage& storage = storages_[tensor.storage().unsafeGetStorageImpl()];
    if (!storage) {
      storage = c10::Storage(c10::Storage::use_byte_size_t(),
                             tensor.storage().nbytes(),
                             at::DataPtr(address(tensor.storage()), tensor.device()));
    }
    at::Tensor made = shaped(storage, tensor, c10::DispatchKey::CUDA);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      made.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return made;
  }

  ska::flat_hash_map<const c10::StorageImpl*, c10::Storage> storages_;
};

}  // namespace

CapturedCall::CapturedCall(const EmulatedKernel& kernel,
                           const c10::OperatorHandle& op,
                           c10::ArrayRef<c10::IValue> arguments,
                           std::vector<ResultMemory> results,
                           Draws::Record draws)
    : kernel_(kernel), op_(op), results_(std::move(results)), draws_(std::move(draws)) {
  Borrowing borrow;
  for (const c10::IValue& argument : arguments)
    arguments_.push_back(borrow(argument));
}

void CapturedCall::add(std::unique_ptr<CapturedCall> call,
                       CUstream stream,
                       const std::vector<spillway_emulator_view>& accesses) {
  const int result = emulated_runtime().add_node(
      stream,
      call->kernel_.name(),
      [](void* state) { static_cast<CapturedCall*>(state)->run(); },
      [](void* state) { delete static_cast<CapturedCall*>(state); },
      call.get(),
      accesses.data(),
      accesses.size());
  C10_CUDA_CHECK(static_cast<cudaError_t>(result));
  std::ignore = call.release();  // now owned by the graph
}

void CapturedCall::run() noexcept {
  try {
    Aliases aliases(kernel_.name());
    c10::Stack host;
    for (const c10::IValue& argument : arguments_)
      host.push_back(aliases.to_host(argument));
    const Draws draws(draws_);
    kernel_.compute(op_, host, draws);
    for (const c10::IValue& result : host)
      aliases.adopt(result);
    aliases.fill_again(results_);
  } catch (const std::exception& error) {
    std::fprintf(
        stderr, "spillway-emulator: %s failed in a graph: %s\n", kernel_.name(), error.what());
    emulated_runtime().fail(CUDA_ERROR_LAUNCH_FAILED);
  }
}

}  // namespace spillway::operators
