// SPDX-License-Identifier: Apache-2.0
#include "hooks/kernel_names/cupti_api.h"

#include <dlfcn.h>

namespace spillway::hooks {
namespace {

constexpr const char* kLibrary = "libcupti.so.13";

}  // namespace

Result<CuptiApi> CuptiApi::from(Lookup lookup, void* library) {
  CuptiApi api;
#define SPILLWAY_CUPTI(member, symbol)                                                     \
  api.member = reinterpret_cast<decltype(&(symbol))>(lookup(library, #symbol));            \
  if (api.member == nullptr) {                                                             \
    return SPILLWAY_ERROR(Code::kNoDriver,                                                 \
                          #symbol " is missing from " + std::string(kLibrary) +            \
                              ". Install CUPTI 13.0 or later, which is part of CUDA 13."); \
  }
#include "hooks/kernel_names/cupti_symbols.inc"
#undef SPILLWAY_CUPTI
  return api;
}

Result<CuptiApi> CuptiApi::load(const std::vector<std::string>& folders) {
  return open(files(folders));
}

std::vector<std::string> CuptiApi::files(const std::vector<std::string>& folders) {
  std::vector<std::string> files{kLibrary};
  for (const std::string& folder : folders)
    files.push_back(folder + "/" + kLibrary);
  return files;
}

Result<CuptiApi> CuptiApi::open(const std::vector<std::string>& files) {
  void* library = nullptr;
  for (auto file = files.begin(); library == nullptr && file != files.end(); ++file) {
    library = dlopen(file->c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one for each thread
    return SPILLWAY_ERROR(
        Code::kNoDriver,
        std::string("launches are watched through CUPTI, which cannot be opened: ") +
            (why == nullptr ? kLibrary : why) +
            ". Install it (pip install nvidia-cuda-cupti), or add its folder to LD_LIBRARY_PATH.");
  }
  return from(dlsym, library);
}

std::string CuptiApi::text(CUptiResult result) const {
  const char* name = nullptr;
  if (get_result_string(result, &name) == CUPTI_SUCCESS && name != nullptr) return name;
  return "CUPTI error " + std::to_string(result);
}

}  // namespace spillway::hooks
