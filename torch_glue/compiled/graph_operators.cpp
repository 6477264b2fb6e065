// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/compiled/graph_operators.h"

#include "allocator/device/fork.h"
#include "torch_glue/saved_storage/region_options.h"
#include "torch_glue/saved_tensors/pack_hook.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <ATen/core/Tensor.h>
#include <ATen/SavedTensorHooks.h>
#include <torch/library.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace spillway {
namespace {

/// The memory of a handle. The number is what a reader of the tensor sees.
struct alignas(16) SavedInGraph {  // as inductor asserts of what operators return
  std::int64_t number = 0;
  at::Tensor kept{};                   // without a region
  std::unique_ptr<PackHook> packed{};  // with one

  static void end(void* context) { delete static_cast<SavedInGraph*>(context); }
};

/// The options of the region that the graph runs in. What a graph recomputes, its compiler has
/// decided. None where autograd's hooks would not be Spillway's either.
std::optional<RegionOptions> region_of_graph() {
  const OffloadedRegion* const region = innermost_region();
  if (region == nullptr || !region->moves || region->rules || in_forked_child())
    return std::nullopt;
  const auto& python = at::SavedTensorDefaultHooks::get_tls_state();
  if (python.is_tracing || python.stack.size() > region->python_hooks) return std::nullopt;
  std::optional<RegionOptions> options(*region->moves);
  options->recompute = false;
  return options;
}

at::Tensor save(const at::Tensor& tensor) {
  auto saved = std::make_unique<SavedInGraph>();
  if (const auto options = region_of_graph()) {
    saved->packed = std::make_unique<PackHook>(&*options);
    saved->packed->call_pack_hook(tensor);
  } else {
    saved->kept = tensor.detach();
  }
  void* const number = &saved->number;
  c10::Storage storage(c10::Storage::use_byte_size_t{},
                       sizeof(saved->number),
                       c10::DataPtr(number, saved.release(), &SavedInGraph::end, at::kCPU),
                       /*allocator=*/nullptr,
                       /*resizable=*/false);
  auto handle = c10::make_intrusive<c10::TensorImpl>(std::move(storage),
                                                     c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                     caffe2::TypeMeta::Make<std::int64_t>());
  handle->set_sizes_and_strides(at::IntArrayRef{}, at::IntArrayRef{});
  return at::Tensor(std::move(handle));
}

at::Tensor load(const at::Tensor& handle,
                c10::SymIntArrayRef /*size*/,
                c10::SymIntArrayRef /*stride*/,
                at::ScalarType /*dtype*/,
                at::Device /*device*/) {
  auto* const saved =
      handle.storage().data_ptr().cast_context<SavedInGraph>(&SavedInGraph::end);
  TORCH_CHECK(saved != nullptr,
              "a saved-tensor hook has replaced what a graph of torch.compile saved by a copy. "
              "Enter the hook before the first call of the compiled function, or run without "
              "torch.compile.");
  return saved->packed != nullptr ? saved->packed->call_unpack_hook() : saved->kept;
}

}  // namespace

void define_graph_operators() {
  static auto* const library = [] {
    auto* const defined =
        new torch::Library(torch::Library::DEF, "spillway", std::nullopt, __FILE__, __LINE__);
    defined->def("save(Tensor tensor) -> Tensor");
    defined->def(
        "load(Tensor handle, SymInt[] size, SymInt[] stride, ScalarType dtype, Device device) "
        "-> Tensor");
    defined->impl("save", c10::DispatchKey::CUDA, &save);
    defined->impl("save", c10::DispatchKey::CPU, &save);  // stays
    defined->impl("load", c10::DispatchKey::CPU, &load);
    return defined;
  }();
  static_cast<void>(library);
}

}  // namespace spillway
