/* mpi_transport.c: the transport over MPI (cluster_transport.h); the only file that is linked with
 * MPI. It is a separate shared object.
 *
 * MPI calls of both threads, the program's and the one that watches the ranks, are made under a
 * lock. Sends copy the message into a slot and do not wait. A wait polls: at first without pause,
 * since the next activations arrive within a step's time; later, or when another thread needs the
 * core, it sleeps between two looks.
 *
 * Long messages only advance while somebody calls MPI: the watching thread does, while the
 * program's thread computes.
 *
 * Rank 0 exchanges a beat with every other rank each second: an empty text, or the reason why the
 * sender ends. A rank that was silent for `timeout` seconds is lost, and so is one whose
 * connection broke. */
#define OMPI_SKIP_MPICXX 1
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "cluster_transport.h"

enum {
    MAX_RANKS = 1024, /* of watched ranks; the program allows fewer */
    SLOTS = 16,       /* messages under way */
    BEAT_MS = 100,    /* between two looks at the ranks */
    BEATS_A_SECOND = 1000 / BEAT_MS,
    SLEEP_NS = 30000,
    SLEEP_PART = 128,  /* of the time that a wait has taken: a late look costs no larger part */
    TEXT_BYTES = 1024, /* of the description of a failure */
    LONG_BYTES = 4096, /* of a message that is not sent at once */
    ADVANCE_NS = 200000,
    LAUNCHER_SECONDS = 2 * CLUSTER_GRACE, /* for the launcher to end */
    JOIN_SECONDS = 10 /* in addition to `timeout`: a machine may be slow to start a process */
};
#define SPIN_SECONDS  0.02
#define YIELD_SECONDS 20e-6 /* a yield that runs no other thread takes 1 microsecond */
#define LONG_SLEEP    1e-3  /* seconds between two looks, at most */
#define SURE_PART     0.85  /* of a usual wait, which is slept through at once */
#define LONGEST_SURE  0.02

typedef struct slot {
    char *data;
    size_t capacity;
    MPI_Request request; /* MPI_REQUEST_NULL: free */
    int to;              /* rank */
} slot;

typedef struct watched {
    double heard; /* time */
    MPI_Request receive, send;
    char in[TEXT_BYTES];
} watched;

static struct {
    cluster_transport_options options;
    MPI_Comm messages, beats;
    int rank, n_ranks;
    char (*hosts)[MPI_MAX_PROCESSOR_NAME];
    slot slots[SLOTS];
    int reserved; /* slot of the reserved message */
    size_t n_reserved;
    double usual[CLUSTER_CHANNELS]; /* seconds of the shortest of the recent waits */
    MPI_Message found;              /* by wait */
    int found_from;
    size_t n_found;

    pthread_mutex_t lock; /* of calls of MPI */
    pthread_mutex_t wake; /* of the next two, and of `failure` */
    pthread_cond_t began; /* a long message is under way */
    bool long_message;
    pthread_t watcher, guard;
    pthread_cond_t passed; /* the guarded call has returned */
    bool guarded;
    watched *peers; /* [n_ranks] */
    volatile int closing;
    volatile int failed;
    char failure[TEXT_BYTES]; /* written once, before `failed` */
    volatile int watching;    /* the watcher runs */
    int aborting;             /* a thread has called abort_ranks */
    volatile int aborts;      /* `reason` is complete */
    char reason[TEXT_BYTES];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .wake = PTHREAD_MUTEX_INITIALIZER,
           .began = PTHREAD_COND_INITIALIZER,
           .passed = PTHREAD_COND_INITIALIZER};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...) {
    va_list values;
    pthread_mutex_lock(&state.wake);
    if (!state.failed) {
        va_start(values, format);
        vsnprintf(state.failure, sizeof state.failure, format, values);
        va_end(values);
        __sync_synchronize();
        state.failed = 1;
    }
    pthread_mutex_unlock(&state.wake);
}

static void fail_mpi(int rank, int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    for (char *p = text; *p; p++)
        if (*p == '\n') *p = ' ';
    fail("rank %d (%s) is lost: %s", rank, state.hosts[rank], text);
}

/* ---- watching -------------------------------------------------------------------------------- */

/* Whether a process is a launcher of MPI, which waits for this run only. */
static bool is_launcher(pid_t id) {
    static const char *const names[] = {"mpirun\n", "orterun\n", "orted\n"};
    char path[32], name[32] = "";
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)id);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t n = read(file, name, sizeof name - 1);
    close(file);
    for (size_t i = 0; n > 0 && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* If a machine does not answer, the launcher waits minutes for its daemon there. A process that
 * outlives this rank kills the launcher: by SIGKILL, since OpenMPI 4.1 crashes on other signals
 * while it aborts. */
static void end_launcher_later(void) {
    const pid_t launcher = getppid();
    if (!is_launcher(launcher) || fork() != 0) return;
    setsid();
    for (int i = 0; i < 3; i++) close(i); /* or readers of the output would wait for this process */
    for (int i = 0; i < LAUNCHER_SECONDS && is_launcher(launcher); i++) sleep(1);
    if (is_launcher(launcher)) kill(launcher, SIGKILL);
    _exit(0);
}

static void end_by_alarm(int number) {
    (void)number;
    _exit(1);
}

/* Ends all ranks. MPI may not reach them any more, so this one ends in any case. */
static void end_all(void) {
    end_launcher_later();
    signal(SIGALRM, end_by_alarm);
    alarm(CLUSTER_GRACE);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

/* The time in so many seconds, by CLOCK_REALTIME. */
static struct timespec after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)seconds;
    t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static void *guard(void *what) {
    const struct timespec end = after(state.options.timeout + JOIN_SECONDS);
    char host[256] = "", why[512];
    pthread_mutex_lock(&state.wake);
    while (state.guarded)
        if (pthread_cond_timedwait(&state.passed, &state.wake, &end) != 0) break;
    bool late = state.guarded;
    pthread_mutex_unlock(&state.wake);
    if (!late) return NULL;
    gethostname(host, sizeof host - 1);
    snprintf(why, sizeof why, "%s: %s does not reach all of them within %.0f seconds",
             (const char *)what, host, state.options.timeout + JOIN_SECONDS);
    state.options.give_up(state.options.user, why);
    end_launcher_later();
    _exit(1);
}

/* MPI's calls that start and end a run wait for all ranks without a limit. From here to guard_end a
 * thread limits the wait: it ends the program. */
static bool guard_begin(char *what) {
    state.guarded = true;
    return pthread_create(&state.guard, NULL, guard, what) == 0;
}

static void guard_end(void) {
    pthread_mutex_lock(&state.wake);
    state.guarded = false;
    pthread_cond_signal(&state.passed);
    pthread_mutex_unlock(&state.wake);
    pthread_join(state.guard, NULL);
}

static bool is_watched(int peer) {
    return peer != state.rank && (state.rank == 0 || peer == 0);
}

/* Takes the lock; false: another thread has it, and `until` has passed. MPI itself may wait for a
 * process that was stopped, in memory that both share. */
static bool lock_until(double until) {
    const struct timespec moment = {.tv_nsec = ADVANCE_NS};
    while (pthread_mutex_trylock(&state.lock) != 0) {
        if (now() > until || state.closing) return false;
        nanosleep(&moment, NULL);
    }
    return true;
}

/* One look at a rank; returns MPI's error. */
static int look_at(int peer, bool beat, double until) {
    watched *w = &state.peers[peer];
    const char *text = state.aborts && state.failed ? state.failure : "";
    int done = 0, code = MPI_SUCCESS;
    if (!lock_until(until)) return MPI_SUCCESS;
    if (w->receive == MPI_REQUEST_NULL)
        code = MPI_Irecv(w->in, TEXT_BYTES, MPI_CHAR, peer, 0, state.beats, &w->receive);
    if (code == MPI_SUCCESS) code = MPI_Test(&w->receive, &done, MPI_STATUS_IGNORE);
    if (done) w->heard = now();
    w->in[TEXT_BYTES - 1] = '\0';
    if (done && w->in[0]) fail("%s", w->in);
    if (code == MPI_SUCCESS && w->send != MPI_REQUEST_NULL)
        code = MPI_Test(&w->send, &done, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && beat && w->send == MPI_REQUEST_NULL)
        code = MPI_Isend(text, (int)strlen(text) + 1, MPI_CHAR, peer, 0, state.beats, &w->send);
    pthread_mutex_unlock(&state.lock);
    return code;
}

/* Advances long messages; false: there are none. */
static bool advance(double until) {
    bool any = false;
    if (!lock_until(until)) return true;
    for (int i = 0; i < SLOTS; i++) {
        int flag = 1; /* requests stay as they are: find_slot tests them */
        if (state.slots[i].request != MPI_REQUEST_NULL)
            MPI_Request_get_status(state.slots[i].request, &flag, MPI_STATUS_IGNORE);
        any = any || !flag;
    }
    pthread_mutex_unlock(&state.lock);
    return any;
}

/* Until the next beat: sleeps, or advances long messages. */
static void pass_time(double until) {
    const struct timespec step = {.tv_nsec = ADVANCE_NS};
    double left = until - now();
    bool began = false;
    if (left <= 0) return;
    const struct timespec end = after(left);
    pthread_mutex_lock(&state.wake);
    while (!state.long_message && !state.closing)
        if (pthread_cond_timedwait(&state.began, &state.wake, &end) != 0) break;
    began = state.long_message;
    state.long_message = false;
    pthread_mutex_unlock(&state.wake);
    while (began && now() < until && !state.closing) {
        began = advance(until);
        nanosleep(&step, NULL);
    }
}

/* Tells the program, and ends the process if it does not leave. */
static void end_soon(void) {
    const struct timespec pause = {.tv_nsec = BEAT_MS * 1000000L};
    state.options.lost(state.options.user, state.failure);
    for (int i = 0; i < CLUSTER_GRACE * BEATS_A_SECOND && !state.closing; i++)
        nanosleep(&pause, NULL);
    if (state.closing) return;
    state.options.give_up(state.options.user, state.failure);
    end_all();
}

/* Tells the others why this rank ends; they then end all ranks. */
static void end_aborted(void) {
    const struct timespec pause = {.tv_nsec = BEAT_MS * 1000000L};
    state.options.give_up(state.options.user, state.failure);
    const int rounds = state.n_ranks > 1 ? CLUSTER_GRACE * BEATS_A_SECOND : 0;
    for (int round = 0; round < rounds && !state.closing; round++) {
        for (int i = 0; i < state.n_ranks; i++)
            if (is_watched(i)) look_at(i, true, now());
        nanosleep(&pause, NULL);
    }
    if (!state.closing) end_all();
}

static void *watch(void *unused) {
    (void)unused;
    double last = now();
    for (int round = 0; !state.closing && !state.failed; round++) {
        double until = now() + 1.0 / BEATS_A_SECOND;
        while (now() < until && !state.closing) pass_time(until);
        if (state.aborts)
            fail("rank %d (%s): %s", state.rank, state.hosts[state.rank], state.reason);
        double time = now();
        /* This process was stopped meanwhile: the others get the time to be heard again. */
        if (time - last > 2)
            for (int i = 0; i < state.n_ranks; i++) state.peers[i].heard += time - last;
        for (int i = 0; i < state.n_ranks && !state.closing && !state.failed; i++) {
            if (!is_watched(i)) continue;
            int code = look_at(i, round % BEATS_A_SECOND == 0, now() + 1.0 / BEATS_A_SECOND);
            if (code != MPI_SUCCESS && !state.closing) fail_mpi(i, code);
            if (time - state.peers[i].heard <= state.options.timeout || state.closing) continue;
            fail("rank %d (%s) is lost: no answer for %.0f seconds", i, state.hosts[i],
                 state.options.timeout);
        }
        last = now();
    }
    if (state.failed && state.aborts)
        end_aborted();
    else if (state.failed)
        end_soon();
    return NULL;
}

/* May be called by a signal handler. */
static void abort_ranks(const char *why) {
    const struct timespec pause = {.tv_nsec = BEAT_MS * 1000000L};
    if (state.watching && __sync_bool_compare_and_swap(&state.aborting, 0, 1)) {
        for (size_t i = 0; i + 1 < sizeof state.reason && why[i]; i++) state.reason[i] = why[i];
        __sync_synchronize();
        state.aborts = 1;
    }
    while (state.watching && !state.closing) nanosleep(&pause, NULL);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int say(char *error, size_t n_error, const char *what) {
    snprintf(error, n_error, "%s", what);
    return -1;
}

static int join_ranks(char *error, size_t n_error) {
    int provided = 0, length = 0;
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
        return say(error, n_error, "MPI_Init_thread failed");
    if (provided < MPI_THREAD_SERIALIZED)
        return say(error, n_error, "this MPI allows calls of one thread only");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &state.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &state.n_ranks);
    if (state.n_ranks > MAX_RANKS) return say(error, n_error, "too many ranks");
    state.hosts = calloc((size_t)state.n_ranks, sizeof *state.hosts);
    state.peers = calloc((size_t)state.n_ranks, sizeof *state.peers);
    if (!state.hosts || !state.peers) return say(error, n_error, "out of memory");
    MPI_Get_processor_name(host, &length);
    if (MPI_Comm_dup(MPI_COMM_WORLD, &state.messages) != MPI_SUCCESS ||
        MPI_Comm_dup(MPI_COMM_WORLD, &state.beats) != MPI_SUCCESS ||
        MPI_Allgather(host, sizeof host, MPI_CHAR, state.hosts, sizeof host, MPI_CHAR,
                      state.messages) != MPI_SUCCESS)
        return say(error, n_error, "the ranks do not reach each other");
    return 0;
}

static int open_mpi(const cluster_transport_options *options, char *error, size_t n_error) {
    static char joining[] = "the ranks join";
    state.options = *options;
    if (!guard_begin(joining)) return say(error, n_error, "no thread could be started");
    int status = join_ranks(error, n_error);
    guard_end();
    if (status != 0) return status;
    MPI_Comm_set_errhandler(state.messages, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(state.beats, MPI_ERRORS_RETURN);
    for (int i = 0; i < SLOTS; i++) state.slots[i].request = MPI_REQUEST_NULL;
    state.found = MPI_MESSAGE_NULL;
    for (int i = 0; i < state.n_ranks; i++)
        state.peers[i] = (watched){
            .heard = now(), .receive = MPI_REQUEST_NULL, .send = MPI_REQUEST_NULL};
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    if (pthread_create(&state.watcher, NULL, watch, NULL) != 0)
        return say(error, n_error, "no thread could be started");
    state.watching = 1;
    return 0;
}

static void close_mpi(int failed) {
    static char leaving[] = "the ranks leave";
    pthread_mutex_lock(&state.wake);
    state.closing = 1;
    pthread_cond_signal(&state.began);
    pthread_mutex_unlock(&state.wake);
    if (failed || state.failed) end_all();
    pthread_join(state.watcher, NULL);
    bool has_guard = guard_begin(leaving);
    MPI_Barrier(state.messages);
    for (int i = 0; i < SLOTS; i++) {
        if (state.slots[i].request != MPI_REQUEST_NULL)
            MPI_Wait(&state.slots[i].request, MPI_STATUS_IGNORE);
        free(state.slots[i].data);
    }
    for (int i = 0; i < state.n_ranks; i++) {
        watched *w = &state.peers[i];
        if (w->receive != MPI_REQUEST_NULL) {
            MPI_Cancel(&w->receive);
            MPI_Wait(&w->receive, MPI_STATUS_IGNORE);
        }
        if (w->send != MPI_REQUEST_NULL) MPI_Request_free(&w->send);
    }
    MPI_Finalize();
    if (has_guard) guard_end();
    free(state.hosts);
    free(state.peers);
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct waiting {
    double began, sure; /* time; seconds in which nothing will probably arrive */
    bool shares_core;   /* another thread needs it, such as one of a rank that computes */
    bool slept;         /* the last pause was all of `sure` */
} waiting;

/* Waits a moment. Each look at the messages takes time from the thread that shares the core, so
 * most of a wait that is as long as usual is slept through at once. */
static void pause_for(waiting *w) {
    const double start = now(), waited = start - w->began;
    if (!w->shares_core && waited < SPIN_SECONDS) {
        sched_yield();
        w->shares_core = now() - start > YIELD_SECONDS;
        return;
    }
    double seconds = w->sure - waited;
    w->slept = seconds > 0;
    if (!w->slept) seconds = waited / SLEEP_PART < LONG_SLEEP ? waited / SLEEP_PART : LONG_SLEEP;
    const long ns = (long)(seconds * 1e9);
    const struct timespec pause = {.tv_nsec = ns > SLEEP_NS ? ns : SLEEP_NS};
    nanosleep(&pause, NULL);
}

/* A free slot; -1: none yet; -2: a failure. */
static int find_slot(void) {
    int best = -1;
    pthread_mutex_lock(&state.lock);
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &state.slots[i];
        int done = 1, code = MPI_SUCCESS;
        if (s->request != MPI_REQUEST_NULL) code = MPI_Test(&s->request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) {
            pthread_mutex_unlock(&state.lock);
            fail_mpi(s->to, code);
            return -2;
        }
        bool larger = best >= 0 && s->capacity > state.slots[best].capacity;
        if (done && (best < 0 || larger)) best = i;
    }
    pthread_mutex_unlock(&state.lock);
    return best;
}

static void *reserve(size_t n) {
    if (n > 0x7fffffff) return NULL;
    waiting w = {.began = now()};
    int found;
    while ((found = find_slot()) == -1 && !state.failed) pause_for(&w);
    if (found < 0 || state.failed) return NULL;
    slot *s = &state.slots[found];
    if (n > s->capacity) {
        free(s->data);
        s->data = malloc(n);
        s->capacity = s->data ? n : 0;
    }
    if (!s->data) s->data = malloc(s->capacity = 64); /* an empty message */
    state.reserved = found;
    state.n_reserved = n;
    return n <= s->capacity ? s->data : NULL;
}

static int send_reserved(int to, int channel) {
    slot *s = &state.slots[state.reserved];
    s->to = to;
    pthread_mutex_lock(&state.lock);
    int code = MPI_Isend(s->data, (int)state.n_reserved, MPI_BYTE, to, channel, state.messages,
                         &s->request);
    pthread_mutex_unlock(&state.lock);
    if (state.n_reserved > LONG_BYTES) {
        pthread_mutex_lock(&state.wake);
        state.long_message = true;
        pthread_cond_signal(&state.began);
        pthread_mutex_unlock(&state.wake);
    }
    if (code != MPI_SUCCESS) fail_mpi(to, code);
    return state.failed;
}

static int probe(int from, int channel, int *flag, size_t *n) {
    MPI_Status status;
    int count = 0;
    pthread_mutex_lock(&state.lock);
    int code = MPI_Improbe(from, channel, state.messages, flag, &state.found, &status);
    if (code == MPI_SUCCESS && *flag) code = MPI_Get_count(&status, MPI_BYTE, &count);
    pthread_mutex_unlock(&state.lock);
    if (code != MPI_SUCCESS) fail_mpi(from, code);
    *n = (size_t)count;
    return code == MPI_SUCCESS ? 0 : -1;
}

static int wait_for(int from, int channel, size_t *n) {
    double *usual = &state.usual[channel];
    waiting w = {.began = now(), .sure = SURE_PART * *usual};
    int flag = 0;
    if (w.sure > LONGEST_SURE) w.sure = LONGEST_SURE;
    for (int looks = 0; !state.failed; looks++) {
        if (probe(from, channel, &flag, n) != 0) return -1;
        if (flag) {
            const double took = now() - w.began, most = 1.25 * *usual + 1e-9 * SLEEP_NS;
            if (w.slept) /* it may have arrived long before */
                *usual = took / 2;
            else if (looks > 0)
                *usual = took < most ? took : most;
            state.n_found = *n;
            state.found_from = from;
            return 0;
        }
        pause_for(&w);
    }
    return -1;
}

static int take(void *to) {
    char nothing;
    MPI_Request request;
    pthread_mutex_lock(&state.lock);
    int code = MPI_Imrecv(to ? to : &nothing, (int)state.n_found, MPI_BYTE, &state.found, &request);
    pthread_mutex_unlock(&state.lock);
    waiting w = {.began = now()};
    for (int done = 0; code == MPI_SUCCESS && !state.failed;) {
        pthread_mutex_lock(&state.lock);
        code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        pthread_mutex_unlock(&state.lock);
        if (done) return 0;
        pause_for(&w);
    }
    if (code != MPI_SUCCESS) fail_mpi(state.found_from, code);
    return -1;
}

static int arrived(int from, int channel) {
    int flag = 0;
    pthread_mutex_lock(&state.lock);
    int code = MPI_Iprobe(from, channel, state.messages, &flag, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&state.lock);
    if (code != MPI_SUCCESS) fail_mpi(from, code);
    return flag;
}

static int rank_of(void) {
    return state.rank;
}
static int count_ranks(void) {
    return state.n_ranks;
}
static const char *host_of(int rank) {
    return state.hosts[rank];
}
static const char *failure(void) {
    return state.failed ? state.failure : "";
}

__attribute__((visibility("default"))) const cluster_transport *powerinfer_cluster_transport(void);
const cluster_transport *powerinfer_cluster_transport(void) {
    static const cluster_transport table = {.version = CLUSTER_TRANSPORT_VERSION,
                                            .size = sizeof table,
                                            .open = open_mpi,
                                            .rank = rank_of,
                                            .ranks = count_ranks,
                                            .host = host_of,
                                            .reserve = reserve,
                                            .send = send_reserved,
                                            .wait = wait_for,
                                            .take = take,
                                            .arrived = arrived,
                                            .failure = failure,
                                            .abort = abort_ranks,
                                            .close = close_mpi};
    return &table;
}
