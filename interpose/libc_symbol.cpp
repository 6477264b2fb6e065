// SPDX-License-Identifier: Apache-2.0
#include "interpose/libc_symbol.h"

#include <elf.h>
#include <link.h>

#include <cstdint>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns")  // a loop must not become a call of strcmp
#endif

namespace spillway::interpose {
namespace {

/// The parts of an object's dynamic section that a look-up by name needs.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* hash = nullptr;  // DT_GNU_HASH
};

Tables tables_of(const link_map& object) {
  Tables tables;
  if (object.l_ld == nullptr) return tables;
  for (const ElfW(Dyn)* each = object.l_ld; each->d_tag != DT_NULL; ++each) {
    const auto* at = reinterpret_cast<const void*>(each->d_un.d_ptr);  // glibc has relocated it
    if (each->d_tag == DT_SYMTAB) tables.symbols = static_cast<const ElfW(Sym)*>(at);
    if (each->d_tag == DT_STRTAB) tables.strings = static_cast<const char*>(at);
    if (each->d_tag == DT_GNU_HASH) tables.hash = static_cast<const std::uint32_t*>(at);
  }
  return tables;
}

// A sanitizer replaces strcmp and similar functions, and looks up the originals with our dlsym
// before its own can be called. This file therefore calls no function of the C library.

bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b)
    ++a, ++b;
  return *a == *b;
}

bool begins(const char* text, const char* with) {
  while (*with != '\0' && *text == *with)
    ++text, ++with;
  return *with == '\0';
}

std::uint32_t gnu_hash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name)
    hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

/// The layout: buckets, first symbol, words of the filter, its shift; the filter; the buckets; a
/// hash per symbol, whose lowest bit ends a bucket.
const ElfW(Sym) * find(const Tables& tables, const char* name) {
  if (tables.symbols == nullptr || tables.strings == nullptr || tables.hash == nullptr) {
    return nullptr;
  }
  const std::uint32_t buckets = tables.hash[0];
  const std::uint32_t first = tables.hash[1];
  const std::uint32_t words = tables.hash[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const std::uint32_t* bucket = tables.hash + 4 + words;
  const std::uint32_t* chain = bucket + buckets;
  const std::uint32_t hash = gnu_hash(name);
  std::uint32_t at = buckets == 0 ? 0 : bucket[hash % buckets];
  if (at < first) return nullptr;
  for (;; ++at) {
    const std::uint32_t have = chain[at - first];
    const ElfW(Sym)& symbol = tables.symbols[at];
    if ((have | 1U) == (hash | 1U) && symbol.st_shndx != SHN_UNDEF &&
        same(tables.strings + symbol.st_name, name)) {
      return &symbol;
    }
    if ((have & 1U) != 0) return nullptr;
  }
}

bool is_libc(const link_map& object) {
  const char* name = object.l_name;
  if (name == nullptr) return false;
  for (const char* at = name; *at != '\0'; ++at) {
    if (*at == '/') name = at + 1;
  }
  return begins(name, "libc.so.") || begins(name, "libdl.so.") || begins(name, "libc-2.") ||
         begins(name, "libdl-2.");
}

}  // namespace

void* libc_symbol(const char* name) {
  // The list only grows at its end, and the C library is among the objects that the process began
  // with.
  for (const link_map* object = _r_debug.r_map; object != nullptr; object = object->l_next) {
    if (!is_libc(*object)) continue;
    const ElfW(Sym)* symbol = find(tables_of(*object), name);
    if (symbol != nullptr) return reinterpret_cast<void*>(object->l_addr + symbol->st_value);
  }
  return nullptr;
}

}  // namespace spillway::interpose
