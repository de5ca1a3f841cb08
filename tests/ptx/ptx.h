/* ptx.h: runs kernels from PTX text, as compilers emit it, on the CPU, and reports their faults:
 * misaligned accesses, accesses outside of allocations, reads of uninitialized memory, and data
 * races of two threads or two blocks. README.md lists faults that it cannot detect.
 *
 * ptx_parse.c reads modules, ptx_decode.c turns a kernel into instructions, ptx_alu.c, ptx_access.c
 * and ptx_warp.c execute them, ptx_run.c schedules, ptx_memory.c keeps the state of each byte,
 * ptx_order.c the order between blocks.
 *
 * Threads: one ptx_memory may be used by several at once; it has a lock, which a launch holds
 * except during a `nanosleep`. A module belongs to one thread at a time. */
#ifndef TEST_PTX_H
#define TEST_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx_error {
    char text[600]; /* "op_norm.ptx:81: norm_kernel: block 0,0,0 thread 3: what" */
} ptx_error;

/* ---- memory: what kernels may access, by host address ---------------------------------------- */

typedef struct ptx_memory ptx_memory;
typedef enum ptx_contents {
    PTX_UNDEFINED, /* until written by a kernel or by ptx_memory_written */
    PTX_DEFINED
} ptx_contents;

ptx_memory *ptx_memory_create(void); /* NULL: out of memory */
void ptx_memory_free(ptx_memory *m); /* accepts NULL; does not free the added ranges */
enum { PTX_HOST = 31 }; /* instead of a device: memory that kernels of all devices reach */
/* Kernels may access [p, p + n), memory of a device, until it is removed. False: out of memory. */
bool ptx_memory_add(ptx_memory *m, const void *p, size_t n, ptx_contents contents, int device);
void ptx_memory_remove(ptx_memory *m, const void *p);
/* Marks bytes as written by a copy from the host or a fill, or as copies of other bytes. */
void ptx_memory_written(ptx_memory *m, const void *p, size_t n);
void ptx_memory_copied(ptx_memory *m, const void *to, const void *from, size_t n);

/* ---- modules and kernels --------------------------------------------------------------------- */

typedef struct ptx_module ptx_module;
typedef struct ptx_kernel ptx_kernel;

/* Parses a text; `name` is for messages. Adds its global variables to memory, which outlives the
 * module. NULL: see *error. */
ptx_module *ptx_module_parse(const char *name, const char *text, ptx_memory *m, ptx_error *error);
ptx_module *ptx_module_open(const char *path, ptx_memory *m, ptx_error *error);
void ptx_module_free(ptx_module *module); /* accepts NULL */
/* Returns the kernel with this (mangled) name, decoded at the first request. NULL with an empty
 * error: the module has no such kernel. */
ptx_kernel *ptx_module_kernel(ptx_module *module, const char *name, ptx_error *error);

size_t ptx_kernel_params(const ptx_kernel *k); /* bytes of its parameters */

typedef struct ptx_grid {
    uint32_t x, y, z; /* blocks */
    uint32_t threads; /* per block, a multiple of 32 */
    uint32_t devices; /* a bit for each device whose memory the kernel reaches */
} ptx_grid;

/* Runs all blocks, one after the other. args: memory layout of the kernel's parameters. False: a
 * fault; execution ends at the first one. */
bool ptx_launch(ptx_kernel *k, ptx_grid grid, const void *args, size_t n_args, ptx_error *error);
/* Bytes that lanes of all launches have loaded, except from shared memory, local memory
 * and parameters that the instruction names. */
uint64_t ptx_loaded(void);

#endif
