// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <driver_types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// The bytes described by CUDA's structs for copies and arrays. For arrays, the bytes of their
/// elements; the driver may add padding, which it does not report.
namespace spillway::interpose::sizes {

/// The bytes of an array's element; 0 for packed or compressed formats.
inline std::uint64_t bytes_of(CUarray_format format, unsigned channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2ULL * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4ULL * channels;
    default:
      return 0;
  }
}

/// The number of items of a box. Arrays without height or depth have 0 there.
inline std::uint64_t box(std::uint64_t width, std::uint64_t height, std::uint64_t depth) {
  return width * std::max<std::uint64_t>(height, 1) * std::max<std::uint64_t>(depth, 1);
}

inline std::uint64_t bytes_of(const std::size_t* bytes) {
  return *bytes;
}

template <typename Copy>

requires requires(const Copy& copy) {
  copy.WidthInBytes;
}

std::uint64_t bytes_of(const Copy* copy) {
  if constexpr (requires { copy->Depth; }) {
    return std::uint64_t{copy->WidthInBytes} * copy->Height * copy->Depth;
  } else {
    return std::uint64_t{copy->WidthInBytes} * copy->Height;
  }
}

inline std::uint64_t bytes_of(const cudaExtent& extent) {
  return std::uint64_t{extent.width} * extent.height * extent.depth;
}

/// The runtime's 3D copies, and batches of both libraries. For an array, the width counts its
/// elements, whose size only the array knows.
template <typename Copy>

requires requires(const Copy& copy) {
  copy.extent.width;
}

std::uint64_t bytes_of(const Copy* copy) {
  return std::uint64_t{copy->extent.width} * copy->extent.height * copy->extent.depth;
}

inline std::uint64_t bytes_of(const CUmemDecompressParams* one) {
  return one->dstNumBytes;
}

/// Memory with a pitch that the call has chosen.
inline std::uint64_t bytes_of(const cudaPitchedPtr* memory, const cudaExtent& extent) {
  return std::uint64_t{memory->pitch} * extent.height * extent.depth;
}

inline std::uint64_t bytes_of(const CUDA_ARRAY_DESCRIPTOR* array) {
  return box(array->Width, array->Height, 1) * bytes_of(array->Format, array->NumChannels);
}

inline std::uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR* array) {
  return box(array->Width, array->Height, array->Depth) *
         bytes_of(array->Format, array->NumChannels);
}

inline std::uint64_t bytes_of(const cudaChannelFormatDesc* element) {
  return static_cast<std::uint64_t>(element->x + element->y + element->z + element->w) / 8;
}

inline std::uint64_t bytes_of(const cudaChannelFormatDesc* element,
                              std::size_t width,
                              std::size_t height) {
  return box(width, height, 1) * bytes_of(element);
}

inline std::uint64_t bytes_of(const cudaChannelFormatDesc* element, const cudaExtent& extent) {
  return box(extent.width, extent.height, extent.depth) * bytes_of(element);
}

}  // namespace spillway::interpose::sizes
