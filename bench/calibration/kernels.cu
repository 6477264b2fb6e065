// SPDX-License-Identifier: Apache-2.0
// The probe's device code: a kernel that waits for the host, one that does nothing, one bound by arithmetic and one bound
// by device memory.

extern "C" __global__ void empty() {}

extern "C" __global__ void wait_for_host(const volatile int* go) {
  while (*go == 0) {
  }
}

extern "C" __global__ void arithmetic(float* sink, int rounds) {
  float a = static_cast<float>(threadIdx.x), b = 0.5F;
  for (int i = 0; i < rounds; ++i) {
    a = a * 0.999F + b;
    b = b * 0.998F + a;
  }
  if (a == -1.0F) *sink = b;  // never true; keeps the arithmetic
}

extern "C" __global__ void stream(float4* to, const float4* from, unsigned long long count) {
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    float4 value = from[i];
    value.x += 1.0F;
    to[i] = value;
  }
}
