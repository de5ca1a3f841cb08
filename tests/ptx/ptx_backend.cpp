/* ptx_backend.cpp: the simulated GPU (src/gpu/sim), but kernels run from the PTX that nvcc
 * generated, in the files that match the pattern in the environment variable PTX_FILES. The
 * simulation provides memory, streams, events and programs.
 *
 * The state of memory must change in the order of a stream's copies and fills, also in recorded
 * programs. So a marker, a kernel of this file, is enqueued after each of them. */
#include "sim_runtime.h"

#include <dlfcn.h>
#include <elf.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "ptx.h"
}

enum { MAX_MODULES = 64, MAX_KERNELS = 4096 };

/* Kernels of this library, by their names in PTX. */
struct kernel_name {
    const void *address;
    const char *name;
};

struct ptx_state {
    pthread_mutex_t mutex; /* for decoding kernels */
    const gpu_backend *sim;
    gpu_backend table;
    ptx_memory *memory;
    ptx_module *modules[MAX_MODULES];
    int n_modules;
    kernel_name names[MAX_KERNELS];
    int n_names;
    uint8_t *image; /* this library's file, which has the names */
    ptx_error error;
};
static ptx_state state = {
    PTHREAD_MUTEX_INITIALIZER, nullptr, {}, nullptr, {}, 0, {}, 0, nullptr, {}};

/* ---- names of kernels ------------------------------------------------------------------------ */

static uint8_t *read_all(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return nullptr;
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    rewind(f);
    uint8_t *bytes = n > 0 ? static_cast<uint8_t *>(malloc(static_cast<size_t>(n))) : nullptr;
    if (bytes && fread(bytes, 1, static_cast<size_t>(n), f) != static_cast<size_t>(n)) {
        free(bytes);
        bytes = nullptr;
    }
    fclose(f);
    return bytes;
}

/* Reads all functions from this library's symbol table: kernels are static, so dladdr does not find
 * them. The host compiler marks names of static functions with an L. */
static void read_names() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void *>(read_names), &info)) return;
    state.image = read_all(info.dli_fname);
    if (!state.image) return;
    const Elf64_Ehdr *head = reinterpret_cast<const Elf64_Ehdr *>(state.image);
    Elf64_Shdr *sections = reinterpret_cast<Elf64_Shdr *>(state.image + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        char *names = reinterpret_cast<char *>(state.image +
                                               sections[sections[i].sh_link].sh_offset);
        const Elf64_Sym *symbols = reinterpret_cast<const Elf64_Sym *>(state.image +
                                                                       sections[i].sh_offset);
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
            char *name = names + symbols[k].st_name;
            if (ELF64_ST_TYPE(symbols[k].st_info) != STT_FUNC || strncmp(name, "_Z", 2) != 0 ||
                !strstr(name, "_kernel") || state.n_names == MAX_KERNELS)
                continue;
            if (name[2] == 'L') memmove(name + 2, name + 3, strlen(name + 2));
            const uint8_t *base = static_cast<const uint8_t *>(info.dli_fbase);
            state.names[state.n_names++] = {base + symbols[k].st_value, name};
        }
    }
}

static void read_modules() {
    const char *pattern = getenv("PTX_FILES");
    glob_t found;
    if (!pattern || glob(pattern, 0, nullptr, &found) != 0) {
        snprintf(state.error.text, sizeof state.error.text, "no files PTX_FILES=%.400s",
                 pattern ? pattern : "");
        return;
    }
    for (size_t i = 0; i < found.gl_pathc && i < MAX_MODULES; i++) {
        ptx_module *m = ptx_module_open(found.gl_pathv[i], state.memory, &state.error);
        if (!m) break;
        state.modules[state.n_modules++] = m;
    }
    globfree(&found);
}

static ptx_kernel *find_kernel(gpu_any_kernel kernel) {
    const char *name = "a function without a name";
    for (int i = 0; i < state.n_names; i++)
        if (state.names[i].address == reinterpret_cast<const void *>(kernel))
            name = state.names[i].name;
    for (int i = 0; i < state.n_modules; i++) {
        ptx_kernel *k = ptx_module_kernel(state.modules[i], name, &state.error);
        if (k || state.error.text[0]) return k;
    }
    snprintf(state.error.text, sizeof state.error.text, "no PTX of kernel %.300s", name);
    return nullptr;
}

/* ---- running --------------------------------------------------------------------------------- */

struct mark {
    const void *to, *from; /* from NULL: written by the host */
    size_t n;
};

static void mark_kernel(mark m) {
    if (m.from)
        ptx_memory_copied(state.memory, m.to, m.from, m.n);
    else
        ptx_memory_written(state.memory, m.to, m.n);
}

static void enqueue_mark(gpu_stream *s, const void *to, const void *from, size_t n) {
    gpu_launch<mark_kernel>(s, gpu_grid{1, 1, 1, GPU_WARP}, mark{to, from, n});
}

/* The simulation's streams call these functions (CMakeLists.txt renames the calls). The PTX gives
 * the size of a kernel's argument; both compilers lay out structs in the same way. */
struct ptx_worker {
    gpu_device *device;
};

ptx_worker *ptx_worker_create(gpu_device *d) {
    ptx_worker *w = static_cast<ptx_worker *>(d->host->alloc(sizeof *w));
    if (w) w->device = d;
    return w;
}

void ptx_worker_free(ptx_worker *w) {
    if (w) w->device->host->free(w);
}

void ptx_worker_run(ptx_worker *w, const gpu_grid &grid, gpu_any_kernel kernel,
                    void (*call)(gpu_any_kernel kernel, const void *args), const void *args) {
    if (kernel == reinterpret_cast<gpu_any_kernel>(mark_kernel)) {
        call(kernel, args);
        return;
    }
    ptx_error error;
    pthread_mutex_lock(&state.mutex);
    ptx_kernel *k = find_kernel(kernel);
    if (!k) error = state.error;
    pthread_mutex_unlock(&state.mutex);
    const ptx_grid blocks = {grid.x, grid.y, grid.z, grid.threads};
    if (k && ptx_launch(k, blocks, args, ptx_kernel_params(k), &error)) return;
    fprintf(stderr, "%s\n", error.text);
    sim_device_stick(w->device, PI_ERR_DEVICE, "ptx: %s", error.text);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Reports the compute capability in the file names: op_matmul.compute_75.ptx. */
static pi_status ptx_describe(int index, gpu_info *info, pi_error *err) {
    pi_status status = state.sim->describe(index, info, err);
    const char *arch = getenv("PTX_FILES");
    if (status || !arch || !(arch = strstr(arch, "compute_"))) return status;
    const int capability = static_cast<int>(strtol(arch + strlen("compute_"), nullptr, 10));
    info->capability_major = capability / 10;
    info->capability_minor = capability % 10;
    return status;
}

static pi_status ptx_open(int index, const gpu_host *host, const gpu_open_options *options,
                          gpu_device **out, pi_error *err) {
    if (state.error.text[0])
        return error_set(err, PI_ERR_DEVICE, "no PTX to run: %s", state.error.text);
    pi_status status = state.sim->open(index, host, options, out, err);
    if (!status && !ptx_memory_add(state.memory, &(*out)->fault, sizeof(gpu_fault), PTX_DEFINED))
        status = error_nomem(err, sizeof(gpu_fault), "device ptx");
    return status;
}

static void ptx_close(gpu_device *d) {
    if (d) ptx_memory_remove(state.memory, &d->fault);
    state.sim->close(d);
}

static pi_status ptx_alloc(gpu_device *d, size_t n_bytes, const char *what, void **out,
                           pi_error *err) {
    pi_status status = state.sim->alloc(d, n_bytes, what, out, err);
    if (!status && !ptx_memory_add(state.memory, *out, n_bytes, PTX_UNDEFINED)) {
        state.sim->free(d, *out);
        status = error_nomem(err, n_bytes, what);
    }
    return status;
}

static pi_status ptx_peer_alloc(gpu_device *from, gpu_device *to, size_t n_bytes, const char *what,
                                void **out, pi_error *err) {
    pi_status status = state.sim->peer_alloc(from, to, n_bytes, what, out, err);
    if (!status && !ptx_memory_add(state.memory, *out, n_bytes, PTX_DEFINED)) {
        state.sim->free(to, *out);
        status = error_nomem(err, n_bytes, what);
    }
    return status;
}

static void ptx_free(gpu_device *d, void *p) {
    ptx_memory_remove(state.memory, p);
    state.sim->free(d, p);
}

static pi_status ptx_host_alloc(gpu_device *d, size_t n_bytes, gpu_pinned *out, pi_error *err) {
    pi_status status = state.sim->host_alloc(d, n_bytes, out, err);
    if (!status && !ptx_memory_add(state.memory, out->device, n_bytes, PTX_DEFINED)) {
        state.sim->host_free(d, out);
        status = error_nomem(err, n_bytes, "device ptx");
    }
    return status;
}

static void ptx_host_free(gpu_device *d, gpu_pinned *p) {
    ptx_memory_remove(state.memory, p->device);
    state.sim->host_free(d, p);
}

static void ptx_upload(gpu_stream *s, void *device, const void *host, size_t n_bytes) {
    state.sim->upload(s, device, host, n_bytes);
    enqueue_mark(s, device, nullptr, n_bytes);
}

static void ptx_copy(gpu_stream *s, void *to, const void *from, size_t n_bytes) {
    state.sim->copy(s, to, from, n_bytes);
    enqueue_mark(s, to, from, n_bytes);
}

static void ptx_fill(gpu_stream *s, void *device, uint8_t value, size_t n_bytes) {
    state.sim->fill(s, device, value, n_bytes);
    enqueue_mark(s, device, nullptr, n_bytes);
}

extern "C" const gpu_backend *ptx_sim_backend(void); /* in sim_device.cpp */
extern "C" PI_API const gpu_backend *powerinfer_gpu_backend(void);
const gpu_backend *powerinfer_gpu_backend(void) {
    if (state.sim) return &state.table;
    state.sim = ptx_sim_backend();
    state.table = *state.sim;
    state.memory = ptx_memory_create();
    if (!state.memory) return nullptr;
    read_names();
    read_modules();
    gpu_backend *t = &state.table;
    t->describe = ptx_describe;
    t->open = ptx_open;
    t->close = ptx_close;
    t->alloc = ptx_alloc;
    t->free = ptx_free;
    t->peer_alloc = ptx_peer_alloc;
    t->host_alloc = ptx_host_alloc;
    t->host_free = ptx_host_free;
    t->upload = ptx_upload;
    t->copy = ptx_copy;
    t->fill = ptx_fill;
    return t;
}
