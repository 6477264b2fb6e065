// SPDX-License-Identifier: Apache-2.0

// PyTorch's profiler asks whether there is a GPU before it asks CUPTI, which calls itself without
// end where there is no driver. CUPTI sees nothing of an emulated GPU.
//
// The name is that of torch 2.11 to 2.15 (libkineto/src/init.cpp).
namespace libkineto {

bool isGpuAvailable();  // NOLINT(readability-identifier-naming): PyTorch's name

bool isGpuAvailable() {
  return false;
}

}  // namespace libkineto
