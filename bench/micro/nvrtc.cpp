// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/nvrtc.h"

#include <dlfcn.h>
#include <nvrtc.h>

#include <string_view>

namespace spillway::micro {
namespace {

#define SPILLWAY_NVRTC(name)                                         \
  const auto name = reinterpret_cast<decltype(&nvrtc##name)>(        \
      library == nullptr ? nullptr : dlsym(library, "nvrtc" #name)); \
  if ((name) == nullptr)                                             \
  return SPILLWAY_ERROR(Code::kNoDriver,                             \
                        "skipped: NVRTC, which makes the kernels, was not found (libnvrtc.so.13)")

void* find_library() {
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace

Result<std::string> compile(const std::string& source, const std::string& architecture) {
  void* library = find_library();  // stays: it is used once in a program's life
  SPILLWAY_NVRTC(CreateProgram);
  SPILLWAY_NVRTC(CompileProgram);
  SPILLWAY_NVRTC(GetProgramLogSize);
  SPILLWAY_NVRTC(GetProgramLog);
  SPILLWAY_NVRTC(GetCUBINSize);
  SPILLWAY_NVRTC(GetCUBIN);
  nvrtcProgram program = nullptr;
  std::size_t size = 0;
  const std::string option = "--gpu-architecture=" + architecture;
  const char* const options[] = {option.c_str()};
  nvrtcResult result = CreateProgram(&program, source.c_str(), "kernels.cu", 0, nullptr, nullptr);
  if (result == NVRTC_SUCCESS) result = CompileProgram(program, 1, options);
  if (result != NVRTC_SUCCESS) {
    std::string words;
    if (program != nullptr && GetProgramLogSize(program, &size) == NVRTC_SUCCESS && size > 1) {
      words.resize(size);
      GetProgramLog(program, words.data());
    }
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "skipped: NVRTC for " + architecture + ": error " +
                              std::to_string(result) + ' ' + words.substr(0, words.find('\n')));
  }
  std::string image;
  if (GetCUBINSize(program, &size) == NVRTC_SUCCESS) {
    image.resize(size);
    result = GetCUBIN(program, image.data());
  }
  if (image.empty() || result != NVRTC_SUCCESS) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "skipped: NVRTC made no code for " + architecture);
  }
  return image;
}

}  // namespace spillway::micro
