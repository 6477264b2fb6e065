// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/installation.h"

#include "emulator/operators/copies.h"
#include "emulator/operators/kernel.h"
#include "emulator/operators/point_to_point.h"

#include <ATen/Context.h>

#include <unordered_set>

namespace spillway::operators {
namespace {

/// Bookkeeping of shapes, storages and streams, and questions about what is there: PyTorch's CUDA
/// code for these launches nothing.
const std::unordered_set<std::string_view> kNative = {
    "aten::_efficientzerotensor",
    "aten::_fused_sdp_choice",
    "aten::_has_compatible_shallow_copy_type",
    "aten::_local_scalar_dense",
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

bool runs_on_cpu(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  return op.hasKernelForDispatchKey(DispatchKey::CPU) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
}

/// PyTorch warns of every kernel that is replaced; here that is the purpose.
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

Chosen choose(const std::string& name, const c10::OperatorHandle& op) {
  if (auto staged = point_to_point_kernel(name)) return {"body", std::move(staged)};
  if (!is_ours(name) || kNative.contains(name)) return {"native", std::nullopt};
  if (name == "aten::copy_") return {"emulated", boxed<CopyKernel>(op)};
  if (name == "aten::_foreach_copy_") return {"emulated", boxed<ForeachCopyKernel>()};
  if (const Body body = find_body(name)) return {"body", boxed<EmulatedKernel>(op, body)};
  if (runs_on_cpu(op)) return {"emulated", boxed<EmulatedKernel>(op)};
  return {"refused", boxed<RefusingKernel>()};
}

/// Never destroyed: taking the kernels away at exit, when PyTorch is half gone, helps nobody.
struct Installation {
  std::vector<c10::RegistrationHandleRAII> registrations;
  Coverage coverage;
};

Installation* make_installation() {
  auto made = std::make_unique<Installation>();
  auto& dispatcher = c10::Dispatcher::singleton();
  auto names = dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CUDA);
  for (const OperatorAndOverload& composite : kComposite)
    names.emplace_back(composite.name, composite.overload);
  const Quiet quiet;
  for (const c10::OperatorName& name : names) {
    const std::string text = c10::toString(name);
    const auto op = dispatcher.findSchema(name);
    if (!op || made->coverage.contains(text)) continue;
    Chosen chosen = choose(text, *op);
    made->coverage.emplace(text, chosen.kind);
    if (!chosen.kernel) continue;
    made->registrations.push_back(dispatcher.registerImpl(name,
                                                          c10::DispatchKey::CUDA,
                                                          std::move(*chosen.kernel),
                                                          std::nullopt,
                                                          nullptr,
                                                          "spillway emulated GPU"));
  }
  // cuDNN's own operators are refused; without this, batch norm and recurrent layers would choose
  // them.
  at::globalContext().setUserEnabledCuDNN(false);
  return made.release();
}

}  // namespace

const Coverage& install() {
  static const Installation* installation = make_installation();
  return installation->coverage;
}

}  // namespace spillway::operators
