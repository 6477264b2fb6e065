// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/graph_handle.h"

#include <ATen/core/DimVector.h>

#include <cstdint>
#include <utility>

namespace spillway {
namespace {

/// The memory of a handle, aligned as inductor asserts of what operators return.
struct alignas(16) HandleMemory {
  std::int64_t number = 0;  // what a reader of the tensor sees
  at::Tensor kept{};
  std::unique_ptr<torch::autograd::SavedVariableHooks> packed{};

  static void end(void* context) { delete static_cast<HandleMemory*>(context); }
};

HandleMemory* memory_of(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.has_storage()) return nullptr;
  return tensor.storage().data_ptr().cast_context<HandleMemory>(&HandleMemory::end);
}

at::Tensor handle_over(std::unique_ptr<HandleMemory> memory, at::IntArrayRef strides) {
  void* const number = &memory->number;
  c10::Storage storage(c10::Storage::use_byte_size_t{},
                       sizeof(memory->number),
                       c10::DataPtr(number, memory.release(), &HandleMemory::end, at::kCPU),
                       /*allocator=*/nullptr,
                       /*resizable=*/false);
  auto handle = c10::make_intrusive<c10::TensorImpl>(std::move(storage),
                                                     c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                     caffe2::TypeMeta::Make<std::int64_t>());
  handle->set_sizes_and_strides(at::DimVector(strides.size(), 1), strides);
  return at::Tensor(std::move(handle));
}

}  // namespace

at::Tensor GraphHandle::of_packed(std::unique_ptr<torch::autograd::SavedVariableHooks> packed,
                                  at::IntArrayRef strides) {
  auto memory = std::make_unique<HandleMemory>();
  memory->packed = std::move(packed);
  return handle_over(std::move(memory), strides);
}

at::Tensor GraphHandle::of_kept(const at::Tensor& tensor) {
  auto memory = std::make_unique<HandleMemory>();
  memory->kept = tensor.detach();
  return handle_over(std::move(memory), tensor.strides());
}

bool GraphHandle::is(const at::Tensor& tensor) {
  return memory_of(tensor) != nullptr;
}

at::Tensor GraphHandle::saved_tensor(const at::Tensor& handle) {
  const HandleMemory* const memory = memory_of(handle);
  TORCH_CHECK(memory != nullptr,
              "a saved-tensor hook has replaced what a graph of torch.compile saved by a copy. "
              "Enter the hook before the first call of the compiled function, or run without "
              "torch.compile.");
  return memory->packed != nullptr ? memory->packed->call_unpack_hook() : memory->kept;
}

}  // namespace spillway
