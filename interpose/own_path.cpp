// SPDX-License-Identifier: Apache-2.0
#include "interpose/own_path.h"

#include "allocator/base/env.h"
#include "allocator/base/log.h"
#include "interpose/next.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace spillway::interpose {
namespace {

constexpr const char* kOfACopy = "spillway_preload_job_started";  // exported by each

std::string parent(const std::string& path) {
  const std::size_t at = path.rfind('/');
  return at == std::string::npos || at == 0 ? "" : path.substr(0, at);
}

std::string_view last_part(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

bool lists(std::string_view folders, std::string_view wanted) {
  for (std::size_t from = 0; from <= folders.size();) {
    const std::size_t to = std::min(folders.find(':', from), folders.size());
    if (folders.substr(from, to - from) == wanted) return true;
    from = to + 1;
  }
  return false;
}

std::string path_of(const void* address) {
  Dl_info is{};
  if (dladdr(address, &is) == 0 || is.dli_fname == nullptr) return "";
  // LD_PRELOAD may name it relative to the working directory
  char* real = realpath(is.dli_fname, nullptr);
  if (real == nullptr) return "";
  std::string path(real);
  free(real);  // NOLINT(cppcoreguidelines-no-malloc,*-owning-memory): realpath's
  return path;
}

}  // namespace

std::string own_path() {
  static const char self = 0;
  return path_of(&self);
}

bool comes_first() {
  // Not RTLD_DEFAULT, which begins with the calling library: this one is linked with -Bsymbolic.
  void* program = dlopen(nullptr, RTLD_LAZY);
  const std::string first = path_of(plain_dlsym(program, kOfACopy));
  dlclose(program);
  return first == own_path();
}

std::string copy_behind() {
  const void* other = plain_dlsym(RTLD_NEXT, kOfACopy);
  return other == nullptr ? "" : path_of(other);
}

std::string own_folder() {
  return parent(own_path());
}

std::string package_folder() {
  const std::string package = parent(own_folder());
  if (package.empty() || last_part(package) != "spillway") return "";
  if (access((package + "/__init__.py").c_str(), R_OK) != 0) return "";
  return parent(package);
}

void offer_package() {
  const std::string folder = package_folder();
  if (folder.empty()) return;
  const std::string_view name = last_part(folder);
  if (name == "site-packages" || name == "dist-packages") return;
  if (folder.find(':') != std::string::npos) {
    return log("preload: Python cannot search a folder with a colon in its name: " + folder);
  }
  const std::string before = env::foreign("PYTHONPATH").value_or("");
  if (lists(before, folder)) return;
  const std::string folders = before.empty() ? folder : folder + ":" + before;
  setenv("PYTHONPATH", folders.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): see the header
}

}  // namespace spillway::interpose
