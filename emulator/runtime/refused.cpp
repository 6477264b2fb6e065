// SPDX-License-Identifier: Apache-2.0
#include "emulator/runtime/call.h"

using spillway::emulator::runtime::refuse_call;

// Functions that programs link to but that are not emulated: each is an error with its name.
extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return refuse_call<"cudaStreamBeginCapture">();
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) {
  return refuse_call<"cudaStreamEndCapture">();
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) {
  return refuse_call<"cudaGraphDebugDotPrint">();
}

cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return refuse_call<"cudaGraphDestroy">();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return refuse_call<"cudaGraphExecDestroy">();
}

cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t*) {
  return refuse_call<"cudaGraphGetNodes">();
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return refuse_call<"cudaGraphInstantiateWithFlags">();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return refuse_call<"cudaGraphLaunch">();
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t,
                                         cudaGraphNode_t*,
                                         cudaGraphEdgeData*,
                                         size_t*) {
  return refuse_call<"cudaGraphNodeGetDependencies">();
}

cudaError_t cudaIpcCloseMemHandle(void*) {
  return refuse_call<"cudaIpcCloseMemHandle">();
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return refuse_call<"cudaIpcGetEventHandle">();
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) {
  return refuse_call<"cudaIpcGetMemHandle">();
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return refuse_call<"cudaIpcOpenEventHandle">();
}

cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return refuse_call<"cudaIpcOpenMemHandle">();
}

cudaError_t cudaGetSymbolAddress(void**, const void*) {
  return refuse_call<"cudaGetSymbolAddress">();
}

cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return refuse_call<"cudaMemcpyToSymbol">();
}
}
