/* slow_network.c: a network with a latency and a rate between network namespaces, for machines
 * whose kernel has no netem, and a probe of the latency and rate that it reaches. Needs root and
 * /dev/net/tun.
 *
 *   slow_network join DELAY_MS GBIT NAMESPACE...   until it is killed
 *   slow_network echo PORT                         answers probes
 *   slow_network probe ADDRESS PORT                "RTT_MS GBIT"
 *
 * join makes a TUN device, "slow0", in every namespace (of `ip netns`) and prints "ready". The
 * caller gives the device of the k-th namespace, from 1 on, an IPv4 address that ends with k, and
 * brings it up. "-DEVICE" instead of a namespace makes a device of that name in the caller's own:
 * its address ends with 254, and its packets are neither delayed nor limited, since the launcher is
 * there.
 *
 * Each namespace has a link: a packet leaves when the packets before it have left, at the rate of
 * the link, and arrives DELAY_MS later. GBIT 0: no limit. Packets are large (MTU), so that a
 * process can pass on 10 Gbit/s. The process asks for real-time priority: ranks use all cores. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_LINKS = 8,
    LAUNCHER = 254, /* last byte of the launcher's address */
    QUEUE = 1024,   /* packets of a link under way */
    PACKET_BYTES = 65536,
    IP_DESTINATION = 16, /* offset in a header of IPv4 */
    IP_HEADER = 20,
    SPIN_NS = 30000, /* the last part of a wait is a loop: timers are late */
    ROUND_TRIPS = 300,
    CHUNK = 1 << 18
};
#define STREAM_SECONDS 0.5

typedef struct packet {
    int64_t due; /* ns */
    int n;
    uint8_t *data; /* [PACKET_BYTES] */
} packet;

typedef struct slow_link {
    int fd;
    bool slow;
    int64_t free_at; /* ns: when its packets have left */
    packet queue[QUEUE];
    int first, n;
} slow_link;

static slow_link links[MAX_LINKS];
static int n_links, at_launcher = -1;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void stop(const char *what) {
    fprintf(stderr, "slow_network: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- join ------------------------------------------------------------------------------------ */

/* A TUN device of the namespace. */
static int open_device(const char *name) {
    char path[256];
    struct ifreq device = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(device.ifr_name, sizeof device.ifr_name, "%s", name[0] == '-' ? name + 1 : "slow0");
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), other = own;
    if (name[0] != '-') other = open(path, O_RDONLY | O_CLOEXEC);
    if (own < 0 || other < 0 || setns(other, CLONE_NEWNET) != 0) stop(path);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &device) != 0) stop("/dev/net/tun");
    if (setns(own, CLONE_NEWNET) != 0) stop("setns");
    if (other != own) close(other);
    close(own);
    return fd;
}

/* Takes the packets that a namespace has sent. */
static void take_packets(slow_link *l, int64_t delay, double gbit) {
    while (l->n < QUEUE) {
        packet *p = &l->queue[(l->first + l->n) % QUEUE];
        if (!p->data) p->data = malloc(PACKET_BYTES);
        if (!p->data) stop("memory");
        ssize_t n = read(l->fd, p->data, PACKET_BYTES);
        if (n < 0 && errno != EAGAIN && errno != EINTR) stop("read");
        if (n <= 0) return;
        if (n < IP_HEADER || p->data[0] >> 4 != 4) continue; /* not IPv4 */
        const bool slow = l->slow && p->data[IP_DESTINATION + 3] != LAUNCHER;
        const int64_t now = now_ns();
        if (l->free_at < now) l->free_at = now;
        if (slow && gbit > 0) l->free_at += (int64_t)((double)n * 8 / gbit);
        p->due = slow ? l->free_at + delay : now;
        p->n = (int)n;
        l->n++;
    }
}

/* Delivers packets that are due; returns when the next one is. */
static int64_t deliver(slow_link *l) {
    while (l->n > 0) {
        const packet *p = &l->queue[l->first];
        if (p->due > now_ns()) return p->due;
        const int host = p->data[IP_DESTINATION + 3];
        const int to = host == LAUNCHER ? at_launcher : host - 1;
        /* Like a switch: a packet that nobody can take is dropped. */
        if (to >= 0 && to < n_links && write(links[to].fd, p->data, (size_t)p->n) < 0 &&
            errno != EAGAIN && errno != EIO && errno != ENOBUFS)
            stop("write");
        l->first = (l->first + 1) % QUEUE;
        l->n--;
    }
    return INT64_MAX;
}

_Noreturn static void join_networks(double delay_ms, double gbit, char **names, int n) {
    struct pollfd ready[MAX_LINKS];
    const int64_t delay = (int64_t)(delay_ms * 1e6);
    if (n > MAX_LINKS) {
        fprintf(stderr, "slow_network: at most %d namespaces\n", MAX_LINKS);
        exit(1);
    }
    for (n_links = 0; n_links < n; n_links++) {
        links[n_links].fd = open_device(names[n_links]);
        links[n_links].slow = names[n_links][0] != '-';
        if (!links[n_links].slow) at_launcher = n_links;
        ready[n_links] = (struct pollfd){.fd = links[n_links].fd};
    }
    const struct sched_param priority = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
        fprintf(stderr, "slow_network: no real-time priority: latencies vary\n");
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int64_t next = INT64_MAX;
        for (int i = 0; i < n_links; i++) {
            take_packets(&links[i], delay, gbit);
            int64_t due = deliver(&links[i]);
            if (due < next) next = due;
            ready[i].events = links[i].n < QUEUE ? POLLIN : 0;
        }
        const int64_t left = next == INT64_MAX ? INT64_MAX : next - now_ns() - SPIN_NS;
        if (left <= 0) continue;
        const struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        if (ppoll(ready, (nfds_t)n_links, next == INT64_MAX ? NULL : &wait, NULL) < 0 &&
            errno != EINTR)
            stop("poll");
    }
}

/* ---- probe ----------------------------------------------------------------------------------- */

static void set_nodelay(int fd) {
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* Answers every byte 'p' by itself; after 's' counts the bytes until the end, and sends the count.
 */
_Noreturn static void answer_probes(int port) {
    static char chunk[CHUNK];
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&any, sizeof any) != 0 || listen(fd, 4) != 0)
        stop("listen");
    for (;;) {
        int64_t count = 0;
        char c = 'p';
        int peer = accept(fd, NULL, NULL);
        if (peer < 0) stop("accept");
        set_nodelay(peer);
        while (c == 'p' && read(peer, &c, 1) == 1)
            if (c == 'p' && write(peer, &c, 1) != 1) break;
        for (ssize_t n; c == 's' && (n = read(peer, chunk, sizeof chunk)) > 0;) count += n;
        if (c == 's' && write(peer, &count, sizeof count) != (ssize_t)sizeof count) stop("write");
        close(peer);
    }
}

static int compare_times(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int probe(const char *address, int port) {
    static char chunk[CHUNK];
    int64_t times[ROUND_TRIPS], count = 0;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1 ||
        connect(fd, (const struct sockaddr *)&to, sizeof to) != 0)
        stop(address);
    set_nodelay(fd);
    for (int i = 0; i < ROUND_TRIPS; i++) {
        char c = 'p';
        times[i] = now_ns();
        if (write(fd, &c, 1) != 1 || read(fd, &c, 1) != 1) stop("round trip");
        times[i] = now_ns() - times[i];
    }
    qsort(times, ROUND_TRIPS, sizeof *times, compare_times);
    if (write(fd, "s", 1) != 1) stop("write");
    const int64_t start = now_ns();
    while ((double)(now_ns() - start) < STREAM_SECONDS * 1e9)
        if (write(fd, chunk, sizeof chunk) < 0) stop("write");
    shutdown(fd, SHUT_WR);
    if (recv(fd, &count, sizeof count, MSG_WAITALL) != (ssize_t)sizeof count) stop("read");
    printf("%.3f %.3f\n", (double)times[ROUND_TRIPS / 2] / 1e6,
           (double)count * 8 / (double)(now_ns() - start));
    return 0;
}

static double number(const char *text) {
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value < 1e6)) {
        fprintf(stderr, "slow_network: not a number from 0 to 1e6: %s\n", text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv) {
    if (argc > 4 && strcmp(argv[1], "join") == 0)
        join_networks(number(argv[2]), number(argv[3]), argv + 4, argc - 4);
    if (argc == 3 && strcmp(argv[1], "echo") == 0) answer_probes((int)number(argv[2]));
    if (argc == 4 && strcmp(argv[1], "probe") == 0) return probe(argv[2], (int)number(argv[3]));
    fprintf(stderr, "usage: slow_network join|echo|probe ...\n");
    return 2;
}
