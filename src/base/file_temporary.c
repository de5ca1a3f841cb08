/* file_temporary.c: unnamed and named temporary files, and removal of what dead writers left
 * behind.
 *
 * Signals: a fixed table holds the names of temporary files. Its entries never move, so
 * file_temporary_unlink_all can read them at any moment. An entry is LIVE from before its name
 * exists until after the rename or unlink; unlinking a missing name is harmless.
 *
 * Locks: a writer locks its file right after creating it; if the name is gone by then, it tries
 * another name. A process that gets the lock of a file with such a name may therefore remove it. */
#include "file_temporary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "rng.h"

enum {
    NAME_KEPT = 200,    /* bytes of the target's name in the temporary name; OS_NAME_MAX is 255 */
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
    char path[OS_PATH_MAX];
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
        if (atomic_load(&slots[i].state) == SLOT_LIVE) (void)os_path_remove(slots[i].path);
    errno = saved;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool folder_of(const char *path, char folder[OS_PATH_MAX]) {
    size_t n = file_folder_length(path);
    int written = snprintf(folder, OS_PATH_MAX, "%.*s", n ? (int)n : 1, n ? path : ".");
    return written >= 0 && written < OS_PATH_MAX;
}

/* ".NAME." of a target: the prefix of its temporary names. */
static void name_start(const char *target, char start[NAME_KEPT + 3]) {
    snprintf(start, NAME_KEPT + 3, ".%.*s.", NAME_KEPT, target + file_folder_length(target));
}

/* A new name in the folder of `target`; false when it is too long. */
static bool name_temporary(const char *target, char path[OS_PATH_MAX]) {
    char start[NAME_KEPT + 3];
    name_start(target, start);
    int n = snprintf(path, OS_PATH_MAX, "%.*s%s%016" PRIx64 "%s", (int)file_folder_length(target),
                     target, start, rng_entropy(), suffix);
    return n >= 0 && n < OS_PATH_MAX;
}

static bool is_temporary_name(const char *name, const char *start) {
    size_t n = strlen(start);
    return strncmp(name, start, n) == 0 && strlen(name + n) == RANDOM_DIGITS + strlen(suffix) &&
           strspn(name + n, "0123456789abcdef") == RANDOM_DIGITS &&
           strcmp(name + n + RANDOM_DIGITS, suffix) == 0;
}

/* ---- leftovers ------------------------------------------------------------------------------- */

/* Removes a file that nobody has locked. OS_NO_FOLLOW: a symbolic link of that name must not lock
 * another file. */
static void remove_unlocked(const char *path) {
    os_file f;
    os_info info;
    if (os_file_open(path, OS_READ | OS_WRITE | OS_NO_FOLLOW | OS_NO_WAIT, &f) != 0) return;
    if (os_file_info(f, &info) == 0 && info.kind == OS_REGULAR && os_file_lock(f) == 0)
        (void)os_path_remove(path);
    os_file_close(f);
}

/* A folder that cannot be listed keeps its leftovers, which is harmless. */
static void remove_leftovers(const char *target) {
    char start[NAME_KEPT + 3], folder[OS_PATH_MAX], path[OS_PATH_MAX];
    if (!folder_of(target, folder)) return;
    os_folder *dir = os_folder_open(folder);
    if (!dir) return;
    name_start(target, start);
    for (const char *name; (name = os_folder_next(dir));)
        if (is_temporary_name(name, start) && file_join(path, sizeof path, folder, name))
            remove_unlocked(path);
    os_folder_close(dir);
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool open_unnamed(file_temporary *t, const char *target) {
    char folder[OS_PATH_MAX];
    if (!folder_of(target, folder) || os_file_open_unnamed(folder, &t->file) != 0) return false;
    if (os_file_path(t->file, t->path)) {
        (void)os_file_lock(t->file); /* for the short time when it has a temporary name */
        return true;
    }
    os_file_close(t->file);
    return false;
}

static int open_named(file_temporary *t, const char *target) {
    for (int i = 0; i < OPEN_ATTEMPTS; i++) {
        if (!name_temporary(target, t->path)) return ENAMETOOLONG;
        /* Claim first: a signal between open and claim would leave the file behind. */
        t->slot = slot_claim(t->path);
        int problem = os_file_open(t->path, OS_READ | OS_WRITE | OS_CREATE | OS_NEW, &t->file);
        if (!problem) {
            /* Another writer may have taken the file for a leftover between its creation and the
             * lock. Where the file system has no locks, no other writer can lock and remove it. */
            os_info info;
            t->named = os_file_lock(t->file) != EWOULDBLOCK &&
                       (os_file_info(t->file, &info) != 0 || info.n_names > 0);
            if (t->named) return 0;
            os_file_close(t->file);
        }
        slot_release(&t->slot);
        if (problem && problem != EEXIST) return problem;
    }
    return EEXIST;
}

pi_status file_temporary_open(file_temporary *t, const char *target, pi_error *err) {
    t->file = OS_FILE_NONE;
    t->slot = -1;
    t->named = false;
    remove_leftovers(target);
    if (open_unnamed(t, target)) return PI_OK;
    int problem = open_named(t, target);
    return problem ? error_set_errno(err, problem, "cannot create file: %s", target) : PI_OK;
}

void file_temporary_hide(file_temporary *t) {
    char path[OS_PATH_MAX];
    if (!t->named || !os_file_path(t->file, path)) return;
    (void)os_path_remove(t->path);
    slot_release(&t->slot);
    t->named = false;
    memcpy(t->path, path, sizeof path);
}

/* os_file_link gives the file a target name that does not exist. An existing target can only be
 * replaced by renaming, so the file first gets a temporary name for a short time. */
static int publish_unnamed(file_temporary *t, const char *target) {
    char name[OS_PATH_MAX];
    int problem = os_file_link(t->file, target);
    for (int i = 0; i < OPEN_ATTEMPTS && problem == EEXIST; i++) {
        if (!name_temporary(target, name)) return ENAMETOOLONG;
        t->slot = slot_claim(name);
        problem = os_file_link(t->file, name);
        bool linked = !problem;
        if (linked) problem = os_path_rename(name, target);
        if (linked && problem) (void)os_path_remove(name);
        slot_release(&t->slot);
        if (linked) break;
    }
    return problem;
}

int file_temporary_publish(file_temporary *t, const char *target) {
    if (!t->named) return publish_unnamed(t, target);
    int problem = os_path_rename(t->path, target);
    if (problem) return problem;
    slot_release(&t->slot);
    t->named = false;
    return 0;
}

void file_temporary_close(file_temporary *t) {
    if (t->named) (void)os_path_remove(t->path);
    slot_release(&t->slot);
    if (t->file != OS_FILE_NONE) os_file_close(t->file);
    t->file = OS_FILE_NONE;
}
