/* os_file.h: open files and paths.
 *
 * Paths are UTF-8. Functions that return int return 0 or an error number of <errno.h>, which
 * error_set_errno turns into a message. Reads and writes are repeated when a signal interrupts
 * them. Open files are not inherited by other programs. */
#ifndef BASE_OS_FILE_H
#define BASE_OS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a path with its NUL, and of a name without one. */
enum { OS_PATH_MAX = 4096, OS_NAME_MAX = 255 };

/* Whether the drive or this user's part of it is full. */
bool os_problem_is_full(int problem);

/* ---- what a path or an open file is ---------------------------------------------------------- */

typedef enum os_kind { OS_REGULAR, OS_FOLDER, OS_OTHER /* a pipe, a terminal, a device */ } os_kind;

typedef struct os_info {
    os_kind kind;
    uint64_t size;          /* bytes */
    uint64_t volume, index; /* two paths with the same pair lead to the same file */
    uint64_t n_names;       /* in folders; 0: the file has been removed */
    int64_t modified;       /* ns, from an arbitrary start */
    unsigned permissions;   /* for os_file_permit; 0 where folders determine them */
} os_info;

/* Follows symbolic links. Async-signal-safe. */
int os_path_info(const char *path, os_info *out);
/* Whether two paths lead to the same existing file. */
bool os_path_same(const char *a, const char *b);

enum { OS_MAY_READ = 1, OS_MAY_WRITE = 2, OS_MAY_ENTER = 4 /* a folder */ };
/* Whether this process has these permissions (OS_MAY_...) for an existing path. */
int os_path_check(const char *path, unsigned may);

/* ---- folders and names ----------------------------------------------------------------------- */

int os_folder_create(const char *path);         /* EEXIST: there is something already */
int os_folder_create_private(const char *path); /* for this user only */

/* The names in a folder, without "." and "..", in any order. NULL: cannot be listed. */
typedef struct os_folder os_folder;
os_folder *os_folder_open(const char *path);
const char *os_folder_next(os_folder *f); /* valid until the next call; NULL: no more */
void os_folder_close(os_folder *f);       /* NULL is fine */

/* Makes files that this process creates from now on private to its user, until os_files_permit,
 * which takes the result. On Windows the folder determines who can read a file. */
unsigned os_files_private(void);
void os_files_permit(unsigned before);

/* Whether c ends the name of a folder in a path: '/', and on Windows also '\\' and ':'. */
bool os_path_separates(char c);
/* Whether a path leads to the same file from every working folder. */
bool os_path_is_absolute(const char *path);

int os_path_remove(const char *path); /* a file; async-signal-safe */
/* Replaces an existing file `to` atomically. ETXTBSY: another program uses it, on Windows. */
int os_path_rename(const char *from, const char *to);
int os_path_link(const char *from, const char *to); /* a second name; EEXIST */
int os_path_link_symbolic(const char *target, const char *path);
/* Absolute path without symbolic links; false: no such path, or too long. */
bool os_path_real(const char *path, char real[OS_PATH_MAX]);
/* Home folder of "~" or "~user"; false: unknown, or too long. */
bool os_path_home(const char *user, char path[OS_PATH_MAX]);
/* Makes changes of names in a folder durable, where the file system can. */
void os_folder_sync(const char *path);

/* ---- open files ------------------------------------------------------------------------------ */

typedef intptr_t os_file; /* a descriptor */
enum { OS_FILE_NONE = -1, OS_STDIN = 0, OS_STDOUT = 1, OS_STDERR = 2 };

/* The open file that a path such as /dev/stdout names, on Linux also /dev/fd/3; OS_FILE_NONE: it
 * names none. */
os_file os_path_stream(const char *path);

enum {
    OS_READ = 1,
    OS_WRITE = 2,
    OS_CREATE = 4,     /* if it does not exist, mode 0666 minus the umask */
    OS_NEW = 8,        /* with OS_CREATE: EEXIST if it exists */
    OS_DIRECT = 16,    /* reads bypass the page cache; offsets, sizes and addresses are multiples of
                          the drive's block size */
    OS_NO_WAIT = 32,   /* opening a pipe does not wait for its other end */
    OS_NO_FOLLOW = 64, /* fails for a symbolic link */
    OS_NO_TERMINAL = 128 /* a terminal does not become the process's controlling terminal */
};
int os_file_open(const char *path, unsigned how, os_file *out);
/* A file without a name in a folder, for reading and writing; os_file_path opens it. EOPNOTSUPP:
 * this file system or this system has none. */
int os_file_open_unnamed(const char *folder, os_file *out);
/* The same in memory instead of a folder; pages that were never written take none, until they are
 * read through a mapping. */
int os_file_open_memory(os_file *out);
/* Fails where the system reports an earlier write that failed. */
int os_file_close(os_file f);
int os_file_duplicate(os_file f, os_file *out); /* not one of the standard streams */
/* A path that leads to an open file, whatever its names; false: this system has none. */
bool os_file_path(os_file f, char path[OS_PATH_MAX]);
/* Gives an unnamed file its first name. */
int os_file_link(os_file f, const char *path);

int os_file_info(os_file f, os_info *out);
bool os_file_is_writable(os_file f);
bool os_file_appends(os_file f);
void os_file_permit(os_file f, unsigned permissions);
/* Where the next read or write begins; -1: the file has no positions. */
int64_t os_file_position(os_file f);
int os_file_seek(os_file f, uint64_t offset);

/* Reads up to n bytes; *n_read is less only at the end of the file. */
int os_file_read(os_file f, void *data, size_t n, size_t *n_read);
/* One read of up to n bytes at an offset; *n_read 0: the end of the file. */
int os_file_read_at(os_file f, void *data, size_t n, uint64_t offset, size_t *n_read);
/* Both write all bytes. EFAULT: `data` is in a mapped file that became shorter. */
int os_file_write(os_file f, const void *data, size_t n);
int os_file_write_at(os_file f, const void *data, size_t n, uint64_t offset);
int os_file_resize(os_file f, uint64_t size);
/* Reserves space for `size` bytes. EOPNOTSUPP, ENOSYS: this file system cannot. */
int os_file_reserve(os_file f, uint64_t size);
int os_file_sync(os_file f);
/* Locks the file until it is closed, without waiting. EWOULDBLOCK: another process holds the lock;
 * other errors: the file system has no locks. */
int os_file_lock(os_file f);
/* Hint: the page cache need not keep these bytes. */
void os_file_forget(os_file f, uint64_t offset, uint64_t n_bytes);
/* Bytes that this user can still write on the drive of f; UINT64_MAX: unknown. */
uint64_t os_file_room(os_file f);

/* Maps the first `size` bytes (> 0) read-only; the file may be closed. os_memory.h has hints. An
 * access to a page that cannot be read raises a fault (os_signal.h). */
int os_file_map(os_file f, size_t size, const void **out);
/* As os_file_map, but the bytes can be written: pages that are written become private memory, and
 * the file does not change. */
int os_file_map_private(os_file f, size_t size, const void **out);
void os_file_unmap(const void *data, size_t size);

#endif
