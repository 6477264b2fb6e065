// SPDX-License-Identifier: Apache-2.0
// Ends in the ways that programs end, with the emulator at work. Run by exit_test.cpp, which sees
// whether it hangs or crashes.
#include "emulator/emulator.h"

#include <cuda_runtime_api.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr std::size_t kBytes = 1U << 20U;

/// Allocates, copies and waits, indefinitely.
[[noreturn]] void work_indefinitely(std::atomic<int>& started) {
  for (bool first = true;; first = false) {
    void* at = nullptr;
    void* host = nullptr;
    cudaStream_t stream = nullptr;
    cudaMalloc(&at, kBytes);
    cudaMallocHost(&host, kBytes);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMemcpyAsync(at, host, kBytes, cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    cudaFreeHost(host);
    cudaFree(at);
    if (first) ++started;
  }
}

/// Returns when `count` threads are at work.
void start_threads(int count) {
  static std::atomic<int> started{0};
  for (int i = 0; i < count; ++i)
    std::thread([] { work_indefinitely(started); }).detach();
  while (started < count)
    std::this_thread::yield();
}

/// Copies that nothing waits for, and a host function behind them.
void leave_work() {
  void* at = nullptr;
  void* host = nullptr;
  cudaStream_t stream = nullptr;
  cudaMalloc(&at, kBytes);
  cudaMallocHost(&host, kBytes);
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  for (int i = 0; i < 10; ++i)
    cudaMemcpyAsync(at, host, kBytes, cudaMemcpyDefault, stream);
  cudaLaunchHostFunc(
      stream, [](void*) {}, nullptr);
  cudaMemcpyAsync(host, at, kBytes, cudaMemcpyDefault, stream);
  cudaFreeAsync(at, stream);
}

/// A host function that never ends, in a thread of its own.
void block_a_stream() {
  static std::atomic<bool> inside{false};
  std::thread([] {
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    const auto never_ends = [](void*) {
      inside = true;
      for (;;)
        pause();
    };
    cudaLaunchHostFunc(stream, never_ends, nullptr);
    cudaStreamSynchronize(stream);
  }).detach();
  while (!inside)
    std::this_thread::yield();
}

/// A child that may use nothing and must end; its status. Other threads may hold any lock.
int fork_once() {
  const pid_t child = fork();
  if (child == 0) {
    int devices = 0;
    void* at = nullptr;
    const bool refused = cudaGetDeviceCount(&devices) == cudaErrorInitializationError &&
                         cudaMalloc(&at, kBytes) == cudaErrorInitializationError &&
                         spillway_emulator_ready() == 0;
    std::exit(refused ? 0 : 9);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 8;
}

int end(const char* how) {
  const auto is = [how](const char* name) {
    return std::strcmp(how, name) == 0;
  };
  if (cudaSetDevice(0) != cudaSuccess) return 7;
  if (is("return")) return 0;
  leave_work();
  if (is("work_left")) return 0;
  if (is("blocked")) block_a_stream();
  if (is("blocked")) return 0;
  start_threads(3);
  if (is("threads")) return 0;
  if (is("quick")) std::quick_exit(0);
  if (is("other_thread")) {
    std::thread([] { std::exit(0); }).detach();
    for (;;)
      pause();
  }
  if (!is("forks")) return 6;
  for (int i = 0; i < 20; ++i) {
    if (const int status = fork_once(); status != 0) return status;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  alarm(120);  // a hang ends by a signal, which the test distinguishes from a regular exit
  return count == 2 ? end(arguments[1]) : 5;
}
