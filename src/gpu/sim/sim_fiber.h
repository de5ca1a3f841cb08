/* sim_fiber.h: fibers: stacks that one operating system thread switches between.
 *
 * On x86-64 a switch is a dozen instructions; elsewhere it is swapcontext, which also saves the
 * signal mask with two system calls. Every switch is announced to AddressSanitizer, so that it
 * knows the stack. With SIM_RACES in the environment, switches are also announced to
 * ThreadSanitizer, which then treats fibers as threads: a switch orders nothing, barriers do
 * (sim_order_release), so ThreadSanitizer reports a race when two threads of a block access the
 * same memory without a barrier in between. A kernel is then about twenty times slower. Without
 * SIM_RACES ThreadSanitizer sees a block as one thread, and only races between device and CPU. */
#ifndef GPU_SIM_SIM_FIBER_H
#define GPU_SIM_SIM_FIBER_H

#include <stddef.h>

/* SIM_UCONTEXT: use the portable switch also on x86-64. */
#if defined(__x86_64__) && !defined(SIM_UCONTEXT)
#define SIM_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SIM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIM_TSAN 1
#endif
#endif

/* For functions that access fibers from outside: hidden from ThreadSanitizer. */
#define SIM_UNSEEN __attribute__((no_sanitize("thread"), noinline))

struct sim_fiber {
#if defined(SIM_OWN_SWITCH)
    void *sp;
#else
    ucontext_t context;
#endif
    void *bottom; /* of the stack; for the thread's own stack NULL until known */
    size_t n_stack;
    void *asan_fake_stack, *tsan_fiber;
    void (*entry)(void *);
    void *user;
};

/* Makes f the fiber of the calling thread. */
void sim_fiber_adopt(sim_fiber *f);
/* Makes a fiber that calls entry(user) when it is first switched to; entry must not return. */
void sim_fiber_create(sim_fiber *f, void *stack, size_t n_stack, void (*entry)(void *), void *user);
void sim_fiber_free(sim_fiber *f); /* only from sim_fiber_create; not the running fiber */
/* Suspends `from`, the running fiber, until a switch back to it, and runs `to`. */
void sim_fiber_switch(sim_fiber *from, sim_fiber *to);

/* A release happens before later acquires of the same token. */
void sim_order_release(void *token);
void sim_order_acquire(void *token);

#endif
