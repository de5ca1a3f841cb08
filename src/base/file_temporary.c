/* file_temporary.c: unnamed and named temporary files, and removal of what dead writers left
 * behind.
 *
 * Signals: a fixed table holds the names of temporary files. Its entries never move, so
 * file_temporary_unlink_all can read them at any moment. An entry is LIVE from before its name
 * exists until after the rename or unlink; unlinking a missing name is harmless.
 *
 * Locks: a writer locks its file right after creating it. If the name is gone by then, the writer
 * tries another name. Whoever obtains the lock of a file with such a name may therefore remove
 * it. */
#include "file_temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rng.h"

enum {
    NAME_KEPT = 200,    /* bytes of the target's name in the temporary name; NAME_MAX is 255 */
    RANDOM_DIGITS = 16, /* hexadecimal, 64 bits */
    OPEN_ATTEMPTS = 100 /* names to try; the first nearly always succeeds */
};
/* Names that a signal removes at one time. Files beyond this number are written as well, but after
 * a signal the next writer of the same target removes their names. */
enum { TEMPORARY_SLOTS = 8 };

static const char suffix[] = ".tmp";

/* ---- names that a signal removes ------------------------------------------------------------- */

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_LIVE };

typedef struct temporary_slot {
    atomic_int state;
    char path[PATH_MAX];
} temporary_slot;

static temporary_slot slots[TEMPORARY_SLOTS];

static int slot_claim(const char *path) {
    for (int i = 0; i < TEMPORARY_SLOTS; i++) {
        int expected = SLOT_FREE;
        if (atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_FILLING)) {
            snprintf(slots[i].path, sizeof slots[i].path, "%s", path);
            atomic_store(&slots[i].state, SLOT_LIVE);
            return i;
        }
    }
    return -1;
}

static void slot_release(int *slot) {
    if (*slot >= 0) atomic_store(&slots[*slot].state, SLOT_FREE);
    *slot = -1;
}

void file_temporary_unlink_all(void) {
    int saved = errno;
    for (int i = 0; i < TEMPORARY_SLOTS; i++)
        if (atomic_load(&slots[i].state) == SLOT_LIVE) unlink(slots[i].path);
    errno = saved;
}

/* ---- names ----------------------------------------------------------------------------------- */

size_t file_folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static bool folder_of(const char *path, char folder[PATH_MAX]) {
    size_t n = file_folder_length(path);
    int written = snprintf(folder, PATH_MAX, "%.*s", n ? (int)n : 1, n ? path : ".");
    return written >= 0 && written < PATH_MAX;
}

/* ".NAME." of a target: the prefix of its temporary names. */
static void name_start(const char *target, char start[NAME_KEPT + 3]) {
    snprintf(start, NAME_KEPT + 3, ".%.*s.", NAME_KEPT, target + file_folder_length(target));
}

/* A new name in the folder of `target`; false when it is too long. */
static bool name_temporary(const char *target, char path[PATH_MAX]) {
    char start[NAME_KEPT + 3];
    name_start(target, start);
    int n = snprintf(path, PATH_MAX, "%.*s%s%016" PRIx64 "%s", (int)file_folder_length(target),
                     target, start, rng_entropy(), suffix);
    return n >= 0 && n < PATH_MAX;
}

static bool is_temporary_name(const char *name, const char *start) {
    size_t n = strlen(start);
    return strncmp(name, start, n) == 0 && strlen(name + n) == RANDOM_DIGITS + strlen(suffix) &&
           strspn(name + n, "0123456789abcdef") == RANDOM_DIGITS &&
           strcmp(name + n + RANDOM_DIGITS, suffix) == 0;
}

/* ---- leftovers ------------------------------------------------------------------------------- */

/* Removes a file that nobody has locked. O_NOFOLLOW: a symbolic link of that name must not lock
 * another file. */
static void remove_unlocked(int folder, const char *name) {
    struct stat st;
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, name, 0);
    close(fd);
}

/* A folder that cannot be listed keeps its leftovers, which is harmless. */
static void remove_leftovers(const char *target) {
    char start[NAME_KEPT + 3], folder[PATH_MAX];
    if (!folder_of(target, folder)) return;
    DIR *dir = opendir(folder);
    if (!dir) return;
    name_start(target, start);
    for (struct dirent *e; (e = readdir(dir));)
        if (is_temporary_name(e->d_name, start)) remove_unlocked(dirfd(dir), e->d_name);
    closedir(dir);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Where the file system has no locks, no other writer can lock and remove this file either. False:
 * another writer took the file for a leftover between its creation and this call. */
static bool lock_own(int fd) {
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return fstat(fd, &st) != 0 || st.st_nlink > 0;
}

/* An unnamed file is opened and named through /proc. */
static bool open_unnamed(file_temporary *t, const char *target) {
#ifdef O_TMPFILE
    char folder[PATH_MAX];
    if (!folder_of(target, folder)) return false;
    t->fd = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
    if (t->fd < 0) return false;
    snprintf(t->path, sizeof t->path, "/proc/self/fd/%d", t->fd);
    if (access(t->path, F_OK) == 0) {
        (void)flock(t->fd, LOCK_EX | LOCK_NB); /* for the short time when it has a temporary name */
        return true;
    }
    close(t->fd);
#endif
    return false;
}

static int open_named(file_temporary *t, const char *target) {
    for (int i = 0; i < OPEN_ATTEMPTS; i++) {
        if (!name_temporary(target, t->path)) return ENAMETOOLONG;
        /* Claim first: a signal between open and claim would leave the file behind. */
        t->slot = slot_claim(t->path);
        t->fd = open(t->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        int problem = t->fd < 0 ? errno : EEXIST;
        if (t->fd >= 0 && lock_own(t->fd)) {
            t->named = true;
            return 0;
        }
        if (t->fd >= 0) close(t->fd);
        slot_release(&t->slot);
        if (problem != EEXIST) return problem;
    }
    return EEXIST;
}

pi_status file_temporary_open(file_temporary *t, const char *target, pi_error *err) {
    t->fd = t->slot = -1;
    t->named = false;
    remove_leftovers(target);
    if (open_unnamed(t, target)) return PI_OK;
    int problem = open_named(t, target);
    return problem ? error_set_errno(err, problem, "cannot create file: %s", target) : PI_OK;
}

void file_temporary_hide(file_temporary *t) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", t->fd);
    if (!t->named || access(path, F_OK) != 0) return;
    unlink(t->path);
    slot_release(&t->slot);
    t->named = false;
    snprintf(t->path, sizeof t->path, "%s", path);
}

/* linkat gives the file a target name that does not exist. An existing target can only be replaced
 * by rename, so the file first gets a temporary name for a short time. */
static int publish_unnamed(file_temporary *t, const char *target) {
    if (linkat(AT_FDCWD, t->path, AT_FDCWD, target, AT_SYMLINK_FOLLOW) == 0) return 0;
    if (errno != EEXIST) return errno;
    char name[PATH_MAX];
    int problem = EEXIST;
    for (int i = 0; i < OPEN_ATTEMPTS && problem == EEXIST; i++) {
        if (!name_temporary(target, name)) return ENAMETOOLONG;
        t->slot = slot_claim(name);
        bool linked = linkat(AT_FDCWD, t->path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
        problem = linked && rename(name, target) == 0 ? 0 : errno;
        if (linked && problem) unlink(name);
        slot_release(&t->slot);
        if (linked) break;
    }
    return problem;
}

int file_temporary_publish(file_temporary *t, const char *target) {
    if (!t->named) return publish_unnamed(t, target);
    if (rename(t->path, target) != 0) return errno;
    slot_release(&t->slot);
    t->named = false;
    return 0;
}

void file_temporary_close(file_temporary *t) {
    if (t->named) unlink(t->path);
    slot_release(&t->slot);
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
}
