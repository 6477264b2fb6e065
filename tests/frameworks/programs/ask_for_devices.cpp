// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>

// A program without Python that loads a library and asks for GPUs: ask_for_devices LIBRARY.
int main(int, char** arguments) {
  if (dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) return 1;
  const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "cudaGetDeviceCount"));
  int count = 0;
  const int result = ask == nullptr ? -1 : ask(&count);
  std::printf("%d %d\n", result, count);
  return 0;
}
