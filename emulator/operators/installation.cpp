// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/installation.h"

#include "emulator/operators/collective_types.h"
#include "emulator/operators/collectives.h"
#include "emulator/operators/copies.h"
#include "emulator/operators/kernel.h"
#include "emulator/operators/point_to_point.h"
#include "emulator/operators/runtime.h"
#include "emulator/operators/shapes/cudnn_recurrent.h"
#include "emulator/operators/shapes/host_draws.h"
#include "emulator/operators/shapes/host_reads.h"
#include "emulator/operators/shapes/modeled_collectives.h"

#include <ATen/Context.h>

#include <unordered_set>

namespace spillway::operators {
namespace {

/// Handling of shapes, storages and streams, and queries: PyTorch's CUDA code for these launches
/// nothing.
const std::unordered_set<std::string_view> kNative = {
    "aten::_efficientzerotensor",
    "aten::_fused_sdp_choice",
    "aten::_has_compatible_shallow_copy_type",
    "aten::_local_scalar_dense",
    "aten::_nested_view_from_buffer",
    "aten::_reshape_alias",
    "aten::_use_cudnn_ctc_loss",
    "aten::_use_cudnn_ctc_loss.Tensor",
    "aten::_use_miopen_ctc_loss",
    "aten::_use_miopen_ctc_loss.Tensor",
    "aten::as_strided",
    "aten::empty.memory_format",
    "aten::empty_strided",
    "aten::is_set_to",
    "aten::record_stream",
    "aten::resize_",
    "aten::set_",
    "aten::set_.source_Storage",
    "aten::set_.source_Storage_storage_offset",
    "aten::set_.source_Tensor",
    "aten::unfold",
    "aten::view",
    "aten::view_as_complex",
    "aten::view_as_real",
};

/// The same for sparse and nested tensors: their parts, their sizes, and code that is written in
/// terms of operators on the parts.
const std::unordered_set<std::string_view> kNativeOfLayouts = {
    "aten::_coalesced_",
    "aten::_dimI",
    "aten::_dimV",
    "aten::_fused_sdp_choice",
    "aten::_indices",
    "aten::_nested_tensor_size",
    "aten::_nested_tensor_storage_offsets",
    "aten::_nested_tensor_strides",
    "aten::_nnz",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_cudnn_attention_backward",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_sparse_coo_tensor_with_dims",
    "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "aten::_to_copy",
    "aten::_values",
    "aten::alias",
    "aten::ccol_indices",
    "aten::col_indices",
    "aten::copy_",
    "aten::copy_sparse_to_sparse_",
    "aten::crow_indices",
    "aten::dense_dim",
    "aten::detach",
    "aten::empty.memory_format",
    "aten::empty_like",
    "aten::indices",
    "aten::is_coalesced",
    "aten::is_same_size",
    "aten::native_dropout",
    "aten::resize_",
    "aten::resize_as_sparse_",
    "aten::row_indices",
    "aten::sparse_dim",
    "aten::sparse_resize_",
    "aten::sparse_resize_and_clear_",
    "aten::transpose.int",
    "aten::unbind.int",
    "aten::values",
    "aten::view",
};

/// The layouts of CUDA tensors, and which kernels of the CPU serve them.
struct Layout {
  c10::DispatchKey device;
  c10::DispatchKey host;
  const char* name;  // after the operator's, in the table
};

constexpr Layout kLayouts[] = {
    {c10::DispatchKey::CUDA, c10::DispatchKey::CPU, ""},
    {c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparseCPU, " (sparse)"},
    {c10::DispatchKey::SparseCsrCUDA, c10::DispatchKey::SparseCsrCPU, " (compressed sparse)"},
    {c10::DispatchKey::NestedTensorCUDA, c10::DispatchKey::NestedTensorCPU, " (nested)"},
};

/// Operators whose device-independent kernel would choose a CUDA library or launch a CUDA kernel:
/// they get a CUDA kernel here, which has the CPU choose.
struct OperatorAndOverload {
  const char* name;
  const char* overload;
};

constexpr OperatorAndOverload kComposite[] = {{"aten::copy_", ""},
                                              {"aten::convolution", ""},
                                              {"aten::convolution_backward", ""},
                                              {"aten::_convolution", ""},
                                              {"aten::mode", "values"}};

/// Other namespaces (c10d, symm_mem, quantized) are not tensor arithmetic: their CUDA code stays,
/// and a kernel launch in it is refused by the runtime, by name.
bool is_ours(std::string_view name) {
  return name.starts_with("aten::") || name.starts_with("prims::") ||
         name.starts_with("torchvision::");
}

bool runs_on_cpu(const c10::OperatorHandle& op, c10::DispatchKey key) {
  using c10::DispatchKey;
  if (op.hasKernelForDispatchKey(key)) return true;
  return key == DispatchKey::CPU &&
         (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
          op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
          op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd));
}

/// PyTorch warns of every replaced kernel; here the replacement is intended.
class Quiet final : public c10::WarningHandler {
 public:
  Quiet() : before_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }

  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

  ~Quiet() override { c10::WarningUtils::set_warning_handler(before_); }

  void process(const c10::Warning&) override {}

 private:
  c10::WarningHandler* before_;
};

struct Chosen {
  const char* kind;
  std::optional<c10::KernelFunction> kernel;  // none: PyTorch's stays
};

template <class Kernel, class... Arguments>
c10::KernelFunction boxed(Arguments&&... arguments) {
  return c10::KernelFunction::makeFromBoxedFunctor<Kernel>(
      std::make_unique<Kernel>(std::forward<Arguments>(arguments)...));
}

Chosen choose_for_layout(const std::string& name,
                         const c10::OperatorHandle& op,
                         const Layout& layout) {
  if (!is_ours(name) || kNativeOfLayouts.contains(name)) return {"native", std::nullopt};
  if (runs_on_cpu(op, layout.host)) {
    return {"emulated", boxed<EmulatedKernel>(op, nullptr, layout.host)};
  }
  return {"refused", boxed<RefusingKernel>()};
}

Chosen choose(const std::string& name, const c10::OperatorHandle& op) {
  auto collective = for_all_types(op, collective_kernel(name));
  if (emulated_runtime().shape_only) {
    if (auto modeled = modeled_collective(op, collective)) return {"body", std::move(modeled)};
    if (is_cudnn_recurrent(name)) return {"emulated", boxed<EmulatedKernel>(op)};
    if (name == "aten::_local_scalar_dense") return {"native", counted_item()};
  }
  if (collective) return {"body", std::move(collective)};
  if (auto staged = point_to_point_kernel(name)) return {"body", std::move(staged)};
  if (!is_ours(name) || kNative.contains(name)) return {"native", std::nullopt};
  if (name == "aten::copy_") return {"emulated", boxed<CopyKernel>(op)};
  if (name == "aten::_foreach_copy_") return {"emulated", boxed<ForeachCopyKernel>()};
  if (const NamedBody* body = find_body(name)) return {"body", boxed<EmulatedKernel>(op, body)};
  if (runs_on_cpu(op, c10::DispatchKey::CPU)) return {"emulated", boxed<EmulatedKernel>(op)};
  return {"refused", boxed<RefusingKernel>()};
}

/// Never destroyed: unregistering the kernels at exit, when PyTorch is partly destroyed, has no
/// benefit.
struct Installation {
  std::vector<c10::RegistrationHandleRAII> registrations;
  Coverage coverage;
};

void install_for(const Layout& layout, Installation& into) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const bool strided = layout.device == c10::DispatchKey::CUDA;
  auto names = dispatcher.getRegistrationsForDispatchKey(layout.device);
  if (strided) {
    for (const OperatorAndOverload& composite : kComposite)
      names.emplace_back(composite.name, composite.overload);
  }
  for (const c10::OperatorName& name : names) {
    const std::string text = c10::toString(name);
    const auto op = dispatcher.findSchema(name);
    if (!op || into.coverage.contains(text + layout.name)) continue;
    Chosen chosen = strided ? choose(text, *op) : choose_for_layout(text, *op, layout);
    into.coverage.emplace(text + layout.name, chosen.kind);
    if (!chosen.kernel) continue;
    into.registrations.push_back(dispatcher.registerImpl(name,
                                                         layout.device,
                                                         std::move(*chosen.kernel),
                                                         std::nullopt,
                                                         nullptr,
                                                         "spillway emulated GPU"));
  }
}

void install_on_host(Installation& into) {
  for (auto& [name, kernel] : host_draws()) {
    into.registrations.push_back(
        c10::Dispatcher::singleton().registerImpl(c10::OperatorName(name, ""),
                                                  c10::DispatchKey::CPU,
                                                  std::move(kernel),
                                                  std::nullopt,
                                                  nullptr,
                                                  "spillway dry run"));
  }
}

void install_recurrent(Installation& into) {
  for (auto& [name, kernel] : recurrent_layers()) {
    for (const auto key : {c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCUDA}) {
      into.registrations.push_back(c10::Dispatcher::singleton().registerImpl(
          name, key, kernel, std::nullopt, nullptr, "spillway dry run"));
    }
  }
}

Installation* make_installation() {
  auto made = std::make_unique<Installation>();
  const Quiet quiet;
  for (const Layout& layout : kLayouts)
    install_for(layout, *made);
  if (emulated_runtime().shape_only) {
    install_on_host(*made);
    install_recurrent(*made);
  }
  // cuDNN's own operators are refused; without this, batch norm and recurrent layers would choose
  // them. Dry runs model its recurrent layers.
  at::globalContext().setUserEnabledCuDNN(false);
  return made.release();
}

}  // namespace

bool touches_no_bytes(std::string_view name) {
  return kNative.contains(name);
}

const Coverage& install() {
  static const Installation* installation = make_installation();
  return installation->coverage;
}

}  // namespace spillway::operators
