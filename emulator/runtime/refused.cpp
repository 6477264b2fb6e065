// SPDX-License-Identifier: Apache-2.0
#include "emulator/runtime/call.h"

using spillway::emulator::runtime::refuse_call;

// Functions that programs link to but that are not emulated: each is an error with its name.
extern "C" {

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*) {
  return refuse_call<"cudaGraphExecUpdate">();
}

cudaError_t cudaGetSymbolAddress(void**, const void*) {
  return refuse_call<"cudaGetSymbolAddress">();
}

cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return refuse_call<"cudaMemcpyToSymbol">();
}
}
