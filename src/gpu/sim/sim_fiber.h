/* sim_fiber.h: fibers: stacks that one operating system thread switches between.
 *
 * On x86-64 a switch is a dozen instructions; elsewhere it is swapcontext, which also saves the
 * signal mask with two system calls. AddressSanitizer is told of every switch, so that it knows the
 * stack. With SIM_RACES in the environment ThreadSanitizer is told too, and takes fibers for
 * threads: it learns nothing about order from a switch; what orders fibers (barriers) says so
 * itself, and so two threads of a block that touch the same memory without a barrier between are a
 * reported race. That makes a kernel some twenty times slower; otherwise it sees a block as one
 * thread, and races of the device with the CPU only. */
#ifndef GPU_SIM_SIM_FIBER_H
#define GPU_SIM_SIM_FIBER_H

#include <stddef.h>

/* SIM_UCONTEXT: the portable switch also on x86-64. */
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

/* For what looks at fibers from outside: ThreadSanitizer is not to see that. */
#define SIM_UNSEEN __attribute__((no_sanitize("thread"), noinline))

struct sim_fiber {
#if defined(SIM_OWN_SWITCH)
    void *sp;
#else
    ucontext_t context;
#endif
    void *bottom; /* of the stack; NULL for the thread's own until it is known */
    size_t n_stack;
    void *asan_fake_stack, *tsan_fiber;
    void (*entry)(void *);
    void *user;
};

/* A fiber that represents the calling thread. */
void sim_fiber_adopt(sim_fiber *f);
/* A fiber that calls entry(user), which must not return, when it is first switched to. */
void sim_fiber_create(sim_fiber *f, void *stack, size_t n_stack, void (*entry)(void *), void *user);
void sim_fiber_free(sim_fiber *f); /* of one that sim_fiber_create made; not the running one */
/* `from` runs and is left where it is until something switches back to it. */
void sim_fiber_switch(sim_fiber *from, sim_fiber *to);

/* Everything before a release is ordered before everything behind an acquire of the same token. */
void sim_order_release(void *token);
void sim_order_acquire(void *token);

#endif
