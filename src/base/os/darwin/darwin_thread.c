/* darwin_thread.c: waiting for words of memory, conditions with a relative time, random bytes. */
#include <errno.h>
#include <pthread.h>
#include <pthread/qos.h>
#include <stdint.h>
#include <sys/random.h>

#include "clock.h"
#include "posix/posix_thread.h"

void posix_thread_inherit(pthread_attr_t *attributes) {
    qos_class_t class;
    int below;
    if (pthread_get_qos_class_np(pthread_self(), &class, &below) == 0 &&
        class != QOS_CLASS_UNSPECIFIED)
        (void)pthread_attr_set_qos_class_np(attributes, class, below);
}

int os_condition_init(os_condition *c) {
    return pthread_cond_init(posix_condition(c), NULL);
}

/* The time is relative: absolute times would be those of a clock that the user can set. */
bool os_condition_wait_until(os_condition *c, os_mutex *m, double until) {
    double left = until - clock_seconds();
    const struct timespec time = posix_timespec(left > 0 ? left : 0);
    return pthread_cond_timedwait_relative_np(posix_condition(c), posix_mutex(m), &time) !=
           ETIMEDOUT;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The system's calls for waiting are public only in new releases (14.4). Threads wait for the
 * condition of one of several rooms, which the address of the word selects. A room may have waiting
 * threads of other words: they wake early, which os_word_wait may do. */
typedef struct room {
    pthread_mutex_t lock;
    pthread_cond_t changed;
} room;

enum { ROOMS = 16 };

#define ROOM                                                                                       \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER }
#define FOUR_ROOMS ROOM, ROOM, ROOM, ROOM
static room rooms[ROOMS] = {FOUR_ROOMS, FOUR_ROOMS, FOUR_ROOMS, FOUR_ROOMS};

static room *room_of(const atomic_uint *word) {
    const uintptr_t line = 64;
    return &rooms[(uintptr_t)word / line % ROOMS];
}

/* A thread that changes the word and wakes afterwards takes the lock in between: the change is seen
 * here, or the signal arrives after this thread has begun to wait. */
void os_word_wait(atomic_uint *word, unsigned seen) {
    room *r = room_of(word);
    pthread_mutex_lock(&r->lock);
    if (atomic_load(word) == seen) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

void os_word_wake_all(atomic_uint *word) {
    room *r = room_of(word);
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* ---- once ------------------------------------------------------------------------------------ */

enum { ONCE_NEW, ONCE_RUNS, ONCE_DONE };

_Static_assert(sizeof(atomic_uint) == sizeof(int), "os_once is a word");

/* pthread_once_t is larger than os_once. */
void os_once_run(os_once *once, void (*fn)(void)) {
    atomic_uint *state = (atomic_uint *)(void *)&once->state;
    unsigned seen = ONCE_NEW;
    if (atomic_compare_exchange_strong(state, &seen, ONCE_RUNS)) {
        fn();
        atomic_store(state, ONCE_DONE);
        os_word_wake_all(state);
        return;
    }
    for (; seen != ONCE_DONE; seen = atomic_load(state)) os_word_wait(state, ONCE_RUNS);
}

bool os_random(void *out, size_t n) {
    return getentropy(out, n) == 0;
}
