// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/values.h"

#include "emulator/driver/functions.h"

namespace spillway::emulator::driver {
namespace {

constexpr unsigned kMaxInABatch = 256;

template <Literal kName>
CUresult one(CUstream stream, const ValueOperation& operation) {
  return call_on_stream<kName>(stream, [&](Machine& machine, Stream& on) {
    const CUresult result = check_value(machine, operation);
    if (result != CUDA_SUCCESS) return result;
    submit_value(machine, on, operation);
    return machine.sticky.load();
  });
}

/// False for an invalid operation, or one that is not emulated.
bool read(const CUstreamBatchMemOpParams& from, ValueOperation* to) {
  switch (from.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      *to = {from.waitValue.address, from.waitValue.value, 4, from.waitValue.flags, true};
      return true;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      *to = {from.waitValue.address, from.waitValue.value64, 8, from.waitValue.flags, true};
      return true;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      *to = {from.writeValue.address, from.writeValue.value, 4, from.writeValue.flags, false};
      return true;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      *to = {from.writeValue.address, from.writeValue.value64, 8, from.writeValue.flags, false};
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult StreamWriteValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  return one<"cuStreamWriteValue32">(stream, {at, value, 4, flags, false});
}

CUresult StreamWriteValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned flags) {
  return one<"cuStreamWriteValue64">(stream, {at, value, 8, flags, false});
}

CUresult StreamWaitValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  return one<"cuStreamWaitValue32">(stream, {at, value, 4, flags, true});
}

CUresult StreamWaitValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned flags) {
  return one<"cuStreamWaitValue64">(stream, {at, value, 8, flags, true});
}

CUresult StreamBatchMemOp(CUstream stream,
                          unsigned count,
                          CUstreamBatchMemOpParams* operations,
                          unsigned flags) {
  return call_on_stream<"cuStreamBatchMemOp">(stream, [&](Machine& machine, Stream& on) {
    if (operations == nullptr || count > kMaxInABatch || flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<ValueOperation> batch(count);
    for (unsigned i = 0; i < count; ++i) {
      if (operations[i].operation == CU_STREAM_MEM_OP_BARRIER ||
          operations[i].operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) {
        return refuse("a barrier or flush in cuStreamBatchMemOp");
      }
      if (!read(operations[i], &batch[i])) return CUDA_ERROR_INVALID_VALUE;
      const CUresult result = check_value(machine, batch[i]);
      if (result != CUDA_SUCCESS) return result;
    }
    for (const ValueOperation& each : batch)
      submit_value(machine, on, each);
    return machine.sticky.load();
  });
}

}  // namespace spillway::emulator::driver
