// SPDX-License-Identifier: Apache-2.0
// dlsym and dlvsym. In assembly, because a name that is not ours must reach the next dlsym by a
// jump: dlsym identifies its caller by the return address, on which RTLD_NEXT and RTLD_DEFAULT
// depend. Both are exported under the symbol versions of present programs and of those before
// glibc 2.34.
#include "interpose/look_up.h"

static_assert(sizeof(spillway::interpose::Answer) == 16, "returned in rax and rdx");

extern "C" {
// Before the first look-up, the jump target is a function that finds the next definition.
void spillway_first_dlsym();
void spillway_first_dlvsym();
// NOLINTBEGIN(*-reinterpret-cast,*-non-const-global-variables)
void* spillway_next_dlsym = reinterpret_cast<void*>(&spillway_first_dlsym);
void* spillway_next_dlvsym = reinterpret_cast<void*>(&spillway_first_dlvsym);
// NOLINTEND(*-reinterpret-cast,*-non-const-global-variables)
}

// rdi: handle, rsi: name, rdx: version. A name that does not begin with "cu" is not ours: two
// comparisons, then the call is forwarded unchanged.
__asm__(R"(
  .pushsection .text
  .p2align 4
  .type spillway_dlsym, @function
spillway_dlsym:
  testq %rsi, %rsi
  je 1f
  cmpb $'c', (%rsi)
  jne 1f
  cmpb $'u', 1(%rsi)
  je 2f
1:
  jmp *spillway_next_dlsym(%rip)
2:
  pushq %rdi
  pushq %rsi
  subq $8, %rsp
  movq 24(%rsp), %rcx
  xorl %edx, %edx
  call spillway_look_up
  addq $8, %rsp
  popq %rsi
  popq %rdi
  testb %al, %al
  je 1b
  movq %rdx, %rax
  ret
  .size spillway_dlsym, .-spillway_dlsym

  .p2align 4
  .type spillway_dlvsym, @function
spillway_dlvsym:
  testq %rsi, %rsi
  je 1f
  cmpb $'c', (%rsi)
  jne 1f
  cmpb $'u', 1(%rsi)
  je 2f
1:
  jmp *spillway_next_dlvsym(%rip)
2:
  pushq %rdi
  pushq %rsi
  pushq %rdx
  movq 24(%rsp), %rcx
  call spillway_look_up
  movq %rdx, %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  testb %al, %al
  je 1b
  movq %rcx, %rax
  ret
  .size spillway_dlvsym, .-spillway_dlvsym

  .type spillway_first_dlsym, @function
spillway_first_dlsym:
  pushq %rdi
  pushq %rsi
  subq $8, %rsp
  call spillway_find_next_look_ups
  addq $8, %rsp
  popq %rsi
  popq %rdi
  jmp *spillway_next_dlsym(%rip)
  .size spillway_first_dlsym, .-spillway_first_dlsym

  .type spillway_first_dlvsym, @function
spillway_first_dlvsym:
  pushq %rdi
  pushq %rsi
  pushq %rdx
  call spillway_find_next_look_ups
  popq %rdx
  popq %rsi
  popq %rdi
  jmp *spillway_next_dlvsym(%rip)
  .size spillway_first_dlvsym, .-spillway_first_dlvsym
  .popsection

  .globl spillway_dlsym_now, spillway_dlsym_before, spillway_dlvsym_now, spillway_dlvsym_before
  .set spillway_dlsym_now, spillway_dlsym
  .set spillway_dlsym_before, spillway_dlsym
  .set spillway_dlvsym_now, spillway_dlvsym
  .set spillway_dlvsym_before, spillway_dlvsym
  .symver spillway_dlsym_now, dlsym@@@GLIBC_2.34
  .symver spillway_dlsym_before, dlsym@GLIBC_2.2.5
  .symver spillway_dlvsym_now, dlvsym@@@GLIBC_2.34
  .symver spillway_dlvsym_before, dlvsym@GLIBC_2.2.5
)");
