// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/touching.h"

#include "emulator/device/addresses.h"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): POSIX has more in it than <csignal>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string_view>

// All of it runs within a signal handler: no lock, no allocation, no stdio.

namespace spillway::emulator {
namespace {

std::atomic<const char* (*)(std::uintptr_t)> describer{nullptr};

/// Null if the access is permitted, otherwise the reason against it.
const char* problem_in_block(const Machine& machine,
                             const Allocations::Block& block,
                             int device,
                             bool write) {
  if (block.pooled) {
    return Allocations::pool_allows(block, device, write)
               ? nullptr
               : "its memory pool gives this device no such access (cudaMemPoolSetAccess)";
  }
  return machine.peers.may(device, block.device)
             ? nullptr
             : "it is memory of another device, without peer access to it";
}

const char* problem(const Machine& machine, int device, Range range, bool write, Range* granted) {
  if (const Allocations::Block* block = machine.allocations.holding(range)) {
    *granted = block->range;
    return problem_in_block(machine, *block, device, write);
  }
  if (machine.allocations.overlaps(range)) return "it leaves its allocation";
  if (machine.virtual_memory.overlaps(range)) {
    if (machine.virtual_memory.allows(range, device, write, granted)) return nullptr;
    return machine.virtual_memory.mapped(range)
               ? "this device was given no such access (cuMemSetAccess)"
               : "it is not mapped";
  }
  if (const auto locked = machine.host.around(range)) {
    *granted = *locked;
    return nullptr;
  }
  return "it is neither device memory nor page-locked host memory";
}

}  // namespace

const char* description_of(std::uintptr_t at) {
  const auto describe = describer.load();
  const char* const text = describe == nullptr ? nullptr : describe(at);
  return text == nullptr ? "" : text;
}

// NOLINTNEXTLINE(readability-function-size): one access, whole
bool touch(
    Machine& machine, int device, Range range, bool write, const char* operation, Range* granted) {
  const char* wrong = problem(machine, device, range, write, granted);
  if (wrong == nullptr) return true;
  machine.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  std::fprintf(stderr,
               "spillway-emulator: illegal address: \"%s\" on device %d %s %zu bytes at %p: %s%s\n",
               operation,
               device,
               write ? "writes" : "reads",
               range.bytes(),
               range.at(),
               wrong,
               description_of(range.begin));
  return false;
}

namespace {

struct sigaction before_segv;
struct sigaction before_bus;

void print(std::string_view text) {
  // A failed write of the line is ignored.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

void print_address(std::uintptr_t at) {
  std::array<char, 2 * sizeof at> digits{};
  std::size_t first = digits.size();
  for (; at != 0; at /= 16)
    digits[--first] = "0123456789abcdef"[at % 16];
  print({&digits[first], digits.size() - first});
}

void report(int signal, std::uintptr_t at) {
  print("spillway-emulator: the host touched device memory at 0x");
  print_address(at);
  print(signal == SIGBUS ? " that the machine has no memory for" : " that is not mapped");
  print(description_of(at));
  print("\n");
}

/// Applies the previous disposition of the signal.
void go_on(int signal, siginfo_t* info, void* context, const struct sigaction& before) {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
    return;
  }
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
    return;
  }
  const bool sent = info->si_code <= 0;  // by kill: the access is not repeated after the return
  if (sent && before.sa_handler == SIG_IGN) return;
  ::signal(signal, SIG_DFL);
  if (sent) raise(signal);
}

void handle(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (info->si_code > 0 && is_device_address(at)) report(signal, at);
  errno = error;
  go_on(signal, info, context, signal == SIGBUS ? before_bus : before_segv);
}

}  // namespace

void describe_addresses(const char* (*describe)(std::uintptr_t at)) {
  describer = describe;
}

void report_host_faults() {
  struct sigaction action {};

  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before_segv);
  sigaction(SIGBUS, &action, &before_bus);
}

}  // namespace spillway::emulator
