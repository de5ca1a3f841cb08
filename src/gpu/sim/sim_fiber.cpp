/* sim_fiber.cpp: switching stacks. */
#include "sim_fiber.h"

#include <stdint.h>
#include <stdlib.h>

#if defined(SIM_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SIM_TSAN)
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
}
enum { TSAN_NO_SYNC = 1 };
static const bool races = getenv("SIM_RACES") != nullptr;
#endif

#if defined(SIM_OWN_SWITCH) && defined(_WIN32)
/* In the ABI of Windows a callee preserves rbx, rbp, rsi, rdi, r12..r15 and xmm6..xmm15; gs:8 and
 * gs:16 are the bounds of the running stack, which exceptions check. rcx: where to store the old
 * stack pointer; rdx: the new stack pointer. */
extern "C" void sim_fiber_swap(void **save, void *load);
asm(R"(
    .text
    .globl sim_fiber_swap
sim_fiber_swap:
    pushq %rbp
    pushq %rbx
    pushq %rsi
    pushq %rdi
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $160, %rsp
    movups %xmm6, (%rsp)
    movups %xmm7, 16(%rsp)
    movups %xmm8, 32(%rsp)
    movups %xmm9, 48(%rsp)
    movups %xmm10, 64(%rsp)
    movups %xmm11, 80(%rsp)
    movups %xmm12, 96(%rsp)
    movups %xmm13, 112(%rsp)
    movups %xmm14, 128(%rsp)
    movups %xmm15, 144(%rsp)
    pushq %gs:8
    pushq %gs:16
    movq %rsp, (%rcx)
    movq %rdx, %rsp
    popq %gs:16
    popq %gs:8
    movups (%rsp), %xmm6
    movups 16(%rsp), %xmm7
    movups 32(%rsp), %xmm8
    movups 48(%rsp), %xmm9
    movups 64(%rsp), %xmm10
    movups 80(%rsp), %xmm11
    movups 96(%rsp), %xmm12
    movups 112(%rsp), %xmm13
    movups 128(%rsp), %xmm14
    movups 144(%rsp), %xmm15
    addq $160, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rdi
    popq %rsi
    popq %rbx
    popq %rbp
    ret
)");
enum { SAVED_WORDS = 8 + 160 / 8, HOME_WORDS = 4 /* of a callee, above its return address */ };
#elif defined(SIM_OWN_SWITCH)
/* In the System V ABI a callee preserves rbx, rbp and r12..r15; the caller saves all other
 * registers. rdi: where to store the old stack pointer; rsi: the new stack pointer. */
extern "C" void sim_fiber_swap(void **save, void *load);
asm(R"(
    .text
    .globl sim_fiber_swap
    .hidden sim_fiber_swap
    .type sim_fiber_swap, @function
sim_fiber_swap:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size sim_fiber_swap, . - sim_fiber_swap
)");
enum { SAVED_WORDS = 6, HOME_WORDS = 0 };
#endif

/* The fiber that is being switched to; read on its new stack. */
static __thread sim_fiber *arriving __attribute__((tls_model("initial-exec")));
/* The fiber that was switched from. */
static __thread sim_fiber *left __attribute__((tls_model("initial-exec")));

/* Tells AddressSanitizer that the new stack is in use, and gets the bounds of the old stack. */
SIM_UNSEEN static void arrived(sim_fiber *f) {
#if defined(SIM_ASAN)
    const void *bottom = nullptr;
    size_t n = 0;
    __sanitizer_finish_switch_fiber(f->asan_fake_stack, &bottom, &n);
    if (left && !left->bottom) {
        left->bottom = const_cast<void *>(bottom);
        left->n_stack = n;
    }
#else
    (void)f;
#endif
}

SIM_UNSEEN static void fiber_main() {
    sim_fiber *f = arriving;
    arrived(f);
    f->entry(f->user);
    __builtin_trap(); /* entry must not return */
}

SIM_UNSEEN void sim_fiber_adopt(sim_fiber *f) {
    *f = sim_fiber();
#if defined(SIM_TSAN)
    if (races) f->tsan_fiber = __tsan_get_current_fiber();
#endif
}

void sim_fiber_create(sim_fiber *f, void *stack, size_t n_stack, void (*entry)(void *),
                      void *user) {
    *f = sim_fiber();
    f->bottom = stack;
    f->n_stack = n_stack;
    f->entry = entry;
    f->user = user;
#if defined(SIM_OWN_SWITCH)
    /* As if fiber_main had been called: at its first instruction rsp is 8 below a multiple of 16,
     * where the return address would be. */
    uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + n_stack) & ~static_cast<uintptr_t>(15);
    void **sp = reinterpret_cast<void **>(top) - HOME_WORDS;
    *--sp = nullptr;
    *--sp = reinterpret_cast<void *>(fiber_main);
    for (int i = 0; i < SAVED_WORDS; i++) *--sp = nullptr;
#if defined(_WIN32)
    *--sp = reinterpret_cast<void *>(top);
    *--sp = stack;
#endif
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = n_stack;
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
#endif
#if defined(SIM_TSAN)
    if (races) f->tsan_fiber = __tsan_create_fiber(0);
#endif
}

void sim_fiber_free(sim_fiber *f) {
#if defined(SIM_TSAN)
    if (f->tsan_fiber) __tsan_destroy_fiber(f->tsan_fiber);
#endif
    *f = sim_fiber();
}

SIM_UNSEEN void sim_fiber_switch(sim_fiber *from, sim_fiber *to) {
    left = from;
    arriving = to;
#if defined(SIM_ASAN)
    __sanitizer_start_switch_fiber(&from->asan_fake_stack, to->bottom, to->n_stack);
#endif
#if defined(SIM_TSAN)
    if (races) __tsan_switch_to_fiber(to->tsan_fiber, TSAN_NO_SYNC);
#endif
#if defined(SIM_OWN_SWITCH)
    sim_fiber_swap(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
    arrived(from);
}

void sim_order_release(void *token) {
#if defined(SIM_TSAN)
    if (races) __tsan_release(token);
#else
    (void)token;
#endif
}

void sim_order_acquire(void *token) {
#if defined(SIM_TSAN)
    if (races) __tsan_acquire(token);
#else
    (void)token;
#endif
}
