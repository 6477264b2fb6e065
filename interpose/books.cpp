// SPDX-License-Identifier: Apache-2.0
#include "interpose/books.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace spillway::interpose {

__attribute__((tls_model("initial-exec"))) constinit thread_local Local local;

namespace {

constinit std::atomic<Books*> first{nullptr};
constinit std::atomic<bool> keyed{false};
pthread_key_t key;
void (*before_return)(Books&) = nullptr;

/// Books that a thread left behind when it ended.
Books* abandoned() {
  for (Books* each = first.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    bool taken = false;
    if (each->taken.compare_exchange_strong(taken, true)) return each;
  }
  return nullptr;
}

/// From the system: the program's malloc may be what called CUDA.
Books* fresh() {
  void* at =
      mmap(nullptr, sizeof(Books), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* books = new (at) Books;
  books->next = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(books->next, books, std::memory_order_release)) {
  }
  return books;
}

}  // namespace

Books* my_books() {
  if (local.books != nullptr) return local.books;
  Books* books = abandoned();
  if (books == nullptr) books = fresh();
  if (books == nullptr) return nullptr;
  books->thread.store(gettid());
  if (keyed.load()) pthread_setspecific(key, books);
  local.books = books;
  return books;
}

Books* all_books() {
  return first.load(std::memory_order_acquire);
}

bool give_books_back(void (*at_end)(Books&)) {
  before_return = at_end;
  const int failed = pthread_key_create(&key, [](void* mine) {
    auto* books = static_cast<Books*>(mine);
    before_return(*books);
    local.books = nullptr;  // a later destructor of this thread may call CUDA again
    books->taken.store(false);
  });
  keyed.store(failed == 0);
  return failed == 0;
}

}  // namespace spillway::interpose
