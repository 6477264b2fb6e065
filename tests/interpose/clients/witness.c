// SPDX-License-Identifier: Apache-2.0
// Preloaded before the shim: writes down what look-ups of names with "cu" give, one line each, to
// the file that WITNESS names: how name version flags status object symbol. It is an interposer
// like others, so it shows that one before us sees us.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void* (*Dlsym)(void*, const char*);
typedef int (*Get)(const char*, void**, int, unsigned long, int*);

typedef int (*GetFour)(const char*, void**, int, unsigned long);

static Get next_get;
static GetFour next_get_four;

static void write_down(
    const char* how, const char* name, long version, long flags, int status, void* found) {
  static int file = -1;
  if (file < 0) file = open(getenv("WITNESS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  Dl_info is;
  memset(&is, 0, sizeof is);
  if (found != NULL) dladdr(found, &is);
  const char* object = is.dli_fname != NULL ? strrchr(is.dli_fname, '/') : NULL;
  char line[512];
  const int length = snprintf(line,
                              sizeof line,
                              "%s %s %ld %ld %d %s %s\n",
                              how,
                              *name != '\0' ? name : "-",
                              version,
                              flags,
                              status,
                              object != NULL ? object + 1 : "-",
                              is.dli_sname != NULL ? is.dli_sname : "-");
  if (write(file, line, (size_t)length) != length) abort();
}

static int get(const char* name, void** found, int version, unsigned long flags, int* status);
static int get_four(const char* name, void** found, int version, unsigned long flags);

/// Stands in for look-ups that were looked up, so that they are seen too.
static void stand_in(const char* name, void** found, int version) {
  if (strcmp(name, "cuGetProcAddress") != 0 || *found == NULL) return;
  if (version >= 12000) {
    *(void**)(&next_get) = *found;
    Get mine = get;
    memcpy(found, &mine, sizeof mine);
  } else {
    *(void**)(&next_get_four) = *found;
    GetFour mine = get_four;
    memcpy(found, &mine, sizeof mine);
  }
}

static int get(const char* name, void** found, int version, unsigned long flags, int* status) {
  const int result = next_get(name, found, version, flags, status);
  write_down("get",
             name,
             version,
             (long)flags,
             status != NULL ? *status : result,
             result == 0 ? *found : NULL);
  if (result == 0) stand_in(name, found, version);
  return result;
}

static int get_four(const char* name, void** found, int version, unsigned long flags) {
  const int result = next_get_four(name, found, version, flags);
  write_down("get", name, version, (long)flags, result, result == 0 ? *found : NULL);
  if (result == 0) stand_in(name, found, version);
  return result;
}

void* witnessed(void* handle, const char* name) {
  static Dlsym next;
  if (next == NULL) *(void**)(&next) = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (handle == RTLD_NEXT || strncmp(name, "cu", 2) != 0) return next(handle, name);
  void* found = next(handle, name);
  write_down("dlsym", name, 0, 0, 0, found);
  if (found != NULL && strcmp(name, "cuGetProcAddress_v2") == 0)
    stand_in("cuGetProcAddress", &found, 12000);
  return found;
}

__asm__(".symver witnessed, dlsym@@GLIBC_2.34");
void* witnessed_before(void* handle, const char* name) __attribute__((alias("witnessed")));
__asm__(".symver witnessed_before, dlsym@GLIBC_2.2.5");
