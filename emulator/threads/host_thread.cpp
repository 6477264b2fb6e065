// SPDX-License-Identifier: Apache-2.0
#include "emulator/threads/host_thread.h"

#include "emulator/threads/spin_lock.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace spillway::emulator {
namespace {

/// Objects beyond these share clocks, which orders more than the program does.
constexpr std::size_t kSyncClocks = 1U << 12U;
constexpr std::size_t kProbes = 32;

struct SyncClock {
  std::atomic<const void*> object{nullptr};
  SpinLock lock;
  VectorClock clock;
};

constinit std::atomic<std::array<SyncClock, kSyncClocks>*> sync_clocks{nullptr};
constinit std::atomic<bool> following{false};
constinit std::atomic<std::uintptr_t> ignored_begin{0};
constinit std::atomic<std::uintptr_t> ignored_end{0};

constinit SpinLock free_lock;
constinit HostThread* free_threads = nullptr;
constinit pthread_key_t at_thread_end = 0;

// initial-exec: reading it must not allocate.
constinit thread_local HostThread* current __attribute__((tls_model("initial-exec"))) = nullptr;
// A signal handler that posts a semaphore within this code must not wait for its own thread.
constinit thread_local bool busy __attribute__((tls_model("initial-exec"))) = false;

/// The object's own clock: open addressing, without a lock that the program could observe.
SyncClock& clock_of(const void* object) {
  constexpr std::uint64_t kMixer = 0x9E3779B97F4A7C15;
  const auto mixed = ((reinterpret_cast<std::uintptr_t>(object) >> 3U) * kMixer) >> 32U;
  auto& all = *sync_clocks.load(std::memory_order_relaxed);
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    SyncClock& entry = all[(mixed + probe) % kSyncClocks];
    const void* owner = entry.object.load();
    if (owner == nullptr && entry.object.compare_exchange_strong(owner, object)) return entry;
    if (owner == object) return entry;
  }
  return all[mixed % kSyncClocks];
}

bool counts(const void* object) {
  if (!following.load(std::memory_order_relaxed) || busy) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(object);
  return at < ignored_begin.load(std::memory_order_relaxed) ||
         at >= ignored_end.load(std::memory_order_relaxed);
}

/// CPython's state, which contains the interpreter lock; empty without Python.
struct Python {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

Python find_python() {
  void* runtime = dlsym(RTLD_DEFAULT, "_PyRuntime");
  Dl_info info{};
  void* symbol = nullptr;
  if (runtime == nullptr || dladdr1(runtime, &info, &symbol, RTLD_DL_SYMENT) == 0) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(runtime);
  return {begin, begin + static_cast<const ElfW(Sym)*>(symbol)->st_size};
}

/// A stream's function in Python needs the interpreter lock, but that establishes no order. Here it
/// runs on a thread that releases the lock for it; on a GPU it could run at any time.
bool is_interpreter_lock(const void* object) {
  static const Python python = find_python();
  const auto at = reinterpret_cast<std::uintptr_t>(object);
  return at >= python.begin && at < python.end;
}

/// A thread with room for every actor, so that it never allocates again. It has the knowledge of
/// `parent`; if that is null, all knowledge.
HostThread* make_thread(const VectorClock* parent) {
  HostThread* made = nullptr;
  {
    const SpinGuard guard(free_lock);
    made = free_threads;
    if (made != nullptr) free_threads = made->next_free;
  }
  if (made == nullptr) {
    made = new HostThread;
    made->clock.reserve_all();
  }
  made->clock.forget_all();
  made->named = false;
  if (parent != nullptr) {
    made->clock.join(*parent);
  } else {
    learn_everything(made->clock);
  }
  made->actor = take_actor(made->clock);
  return made;
}

void end_thread(HostThread* thread) {
  release_actor(thread->actor);
  const SpinGuard guard(free_lock);
  thread->next_free = free_threads;
  free_threads = thread;
}

/// The value counts the rounds: other destructors may still use the thread in the first ones.
void on_thread_end(void* value) {
  constexpr std::uintptr_t kLastRound = 3;
  const auto round = reinterpret_cast<std::uintptr_t>(value);
  if (round < kLastRound) {
    pthread_setspecific(at_thread_end, reinterpret_cast<void*>(round + 1));
    return;
  }
  if (current == nullptr) return;
  release_at(reinterpret_cast<const void*>(pthread_self()));
  HostThread* ended = current;
  current = nullptr;
  end_thread(ended);
}

// A forked child must find no lock held by a thread that it lacks.
void before_fork() {
  lock_actors();
  free_lock.lock();
  if (auto* all = sync_clocks.load()) {
    for (SyncClock& entry : *all)
      entry.lock.lock();
  }
}

void after_fork() {
  if (auto* all = sync_clocks.load()) {
    for (SyncClock& entry : *all)
      entry.lock.unlock();
  }
  free_lock.unlock();
  unlock_actors();
}

/// The program's first thread has the first number: "the host" in reports. Before other
/// constructors, so that the fork handlers lock these locks after the machine's.
__attribute__((constructor(101))) void start() {
  pthread_atfork(before_fork, after_fork, after_fork);
  const auto is_on = [](const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
    return value != nullptr && std::strcmp(value, "1") == 0;
  };
  if (is_on("SPILLWAY_EMULATE") && is_on("SPILLWAY_EMULATE_CHECK")) follow_threads();
}

}  // namespace

bool follows_threads() {
  return following.load(std::memory_order_relaxed);
}

void follow_threads() {
  static const bool once = [] {
    auto* made = new std::array<SyncClock, kSyncClocks>;
    for (SyncClock& entry : *made)
      entry.clock.reserve_all();
    sync_clocks.store(made);
    pthread_key_create(&at_thread_end, on_thread_end);
    become(make_thread(nullptr));
    following.store(true);
    return true;
  }();
  static_cast<void>(once);
}

HostThread& this_host_thread() {
  if (current == nullptr) {
    become(make_thread(nullptr));
  }
  return *current;
}

HostThread* prepare_host_thread() {
  if (!follows_threads()) return nullptr;
  return make_thread(&this_host_thread().clock);
}

void become(HostThread* thread) {
  current = thread;
  pthread_setspecific(at_thread_end, reinterpret_cast<void*>(1));
}

void discard(HostThread* thread) {
  end_thread(thread);
}

void release_at(const void* object) {
  if (!counts(object) || current == nullptr) return;
  if (current->is_stream && is_interpreter_lock(object)) return;
  busy = true;
  {
    SyncClock& entry = clock_of(object);
    const SpinGuard guard(entry.lock);
    entry.clock.join(current->clock);
  }
  busy = false;
}

void acquire_at(const void* object) {
  if (!counts(object) || current == nullptr) return;
  if (current->is_stream && is_interpreter_lock(object)) return;
  busy = true;
  {
    SyncClock& entry = clock_of(object);
    const SpinGuard guard(entry.lock);
    current->clock.join(entry.clock);
  }
  busy = false;
}

void pause_this_thread(bool pause) {
  busy = pause;
}

void ignore_objects_in(const void* begin, const void* end) {
  ignored_begin.store(reinterpret_cast<std::uintptr_t>(begin));
  ignored_end.store(reinterpret_cast<std::uintptr_t>(end));
}

AsStream::AsStream(Actor stream, const VectorClock& clock) : outer_(current) {
  if (follows_threads()) stream_.clock.reserve_all();
  stream_.clock.join(clock);
  stream_.actor = stream;
  stream_.named = true;
  stream_.is_stream = true;
  current = &stream_;
}

AsStream::~AsStream() {
  current = outer_;
}

namespace {

/// Plain arrays: threads start and end before the machine exists and after its destruction.
struct Actors {
  SpinLock lock;
  std::array<Actor, kMaxActors> free{};
  std::size_t free_count = 0;
  std::atomic<Actor> next{0};
  std::array<std::atomic<std::uint64_t>, kMaxActors> epochs{};
};

constinit Actors actors;

}  // namespace

Actor take_actor(const VectorClock& knows) {
  const SpinGuard guard(actors.lock);
  for (std::size_t i = actors.free_count; i-- > 0;) {
    const Actor actor = actors.free[i];
    if (knows.of(actor) < actors.epochs[actor].load()) continue;
    actors.free[i] = actors.free[--actors.free_count];
    return actor;
  }
  const Actor next = actors.next.load();
  if (next == kMaxActors) return kSharedActor;
  actors.next.store(next + 1);
  return next;
}

void release_actor(Actor actor) {
  if (actor == kSharedActor) return;
  const SpinGuard guard(actors.lock);
  actors.free[actors.free_count++] = actor;
}

void advance(Actor actor, VectorClock& clock) {
  clock.learn(actor, actors.epochs[actor].fetch_add(1) + 1);
}

void learn_everything(VectorClock& clock) {
  for (Actor actor = 0; actor < actors.next.load(); ++actor)
    clock.learn(actor, actors.epochs[actor].load());
}

void lock_actors() {
  actors.lock.lock();
}

void unlock_actors() {
  actors.lock.unlock();
}

}  // namespace spillway::emulator
