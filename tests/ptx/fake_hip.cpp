/* fake_hip.cpp: a libamdhip64.so.6 whose GPUs are those of fake_cuda.cpp, for the backend `hip`.
 *
 * Modules are AMD's code objects: their headers, symbols and metadata are read, and must be what a
 * runtime would load on a GPU of FAKE_HIP_ARCH. A launch must keep to the metadata of its kernel.
 * AMD's instructions are not run: the kernel of the same name in the build's PTX for sm_80 is.
 *
 * With FAKE_HIP_5 it is a libamdhip64.so.5, which has another layout of properties, and neither
 * texts for errors nor a rate of the clock.
 *
 * From the environment: FAKE_HIP_ARCH, the GPUs' target (default: the first one of the build);
 * FAKE_CUDA_INIT, what hipInit returns. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FAKE_OK = 0,
    FAKE_INVALID = 1,
    FAKE_NO_MEMORY = 2,
    FAKE_NO_BINARY = 209,
    FAKE_NOT_FOUND = 500,
    FAKE_NOT_SUPPORTED = 801
};
enum { MAX_KERNELS = 4096, MAX_CONTEXTS = 8, TEXT = 256, NAME_BYTES = 512 };

typedef struct fake_context fake_context;
typedef struct fake_graph fake_graph;
typedef struct gpu_stream gpu_stream;
typedef struct gpu_event gpu_event;
typedef struct gpu_program gpu_program;
typedef struct ptx_module ptx_module;
typedef struct fake_function fake_function;

/* Those of fake_cuda.cpp. */
extern "C" {
int cuInit(unsigned flags);
int cuDeviceGetCount(int *n);
int cuDeviceGet(int *device, int index);
int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetPCIBusId(char *bus, int size, int device);
int cuDeviceTotalMem_v2(size_t *n_bytes, int device);
int cuDeviceCanAccessPeer(int *can, int from, int to);
int cuDevicePrimaryCtxRetain(fake_context **out, int device);
int cuCtxSetCurrent(fake_context *c);
int cuCtxEnablePeerAccess(fake_context *peer, unsigned flags);
int cuMemGetInfo_v2(size_t *available, size_t *total);
int cuMemAlloc_v2(void **out, size_t n_bytes);
int cuMemFree_v2(void *p);
int cuMemHostAlloc(void **out, size_t n_bytes, unsigned flags);
int cuMemHostGetDevicePointer_v2(void **device, void *p, unsigned flags);
int cuMemFreeHost(void *p);
int cuStreamCreate(gpu_stream **out, unsigned flags);
int cuStreamDestroy_v2(gpu_stream *s);
int cuStreamSynchronize(gpu_stream *s);
int cuStreamWaitEvent(gpu_stream *s, gpu_event *e, unsigned flags);
int cuEventCreate(gpu_event **out, unsigned flags);
int cuEventDestroy_v2(gpu_event *e);
int cuEventRecord(gpu_event *e, gpu_stream *s);
int cuEventQuery(gpu_event *e);
int cuEventElapsedTime(float *ms, gpu_event *from, gpu_event *to);
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t n, gpu_stream *s);
int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t n, gpu_stream *s);
int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t n, gpu_stream *s);
int cuMemsetD8Async(void *to, unsigned char value, size_t n, gpu_stream *s);
int cuStreamBeginCapture_v2(gpu_stream *s, int mode);
int cuStreamEndCapture(gpu_stream *s, fake_graph **out);
int cuGraphDestroy(fake_graph *g);
int cuGraphInstantiateWithFlags(gpu_program **out, fake_graph *g, unsigned long long flags);
int cuGraphExecDestroy(gpu_program *p);
int cuGraphLaunch(gpu_program *p, gpu_stream *s);
int cuModuleLoadDataEx(ptx_module **out, const void *image, unsigned n, int *options,
                       void **values);
int cuModuleGetFunction(fake_function **out, ptx_module *m, const char *name);
int cuLaunchKernel(fake_function *f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                   unsigned, unsigned shared_bytes, gpu_stream *s, void **params, void **extra);
int cuGetErrorString(int result, const char **text);
}

/* What is wrong, for FAKE_INVALID of the calling thread. */
static __thread char problem[NAME_BYTES + TEXT];

#define REFUSE(...)                                                                                \
    do {                                                                                           \
        snprintf(problem, sizeof problem, __VA_ARGS__);                                            \
        fprintf(stderr, "fake HIP: %s\n", problem);                                                \
        return FAKE_INVALID;                                                                       \
    } while (0)

/* ---- code objects ----------------------------------------------------------------------------
 *
 * ELF: https://llvm.org/docs/AMDGPUUsage.html, "Code Object". Its note NT_AMDGPU_METADATA has, as
 * MessagePack, a map per kernel: name, arguments, limits. */

struct hip_kernel {
    char name[NAME_BYTES];
    uint64_t arg_bytes;   /* of the one argument, a struct by value */
    uint64_t max_threads; /* of a block */
    uint64_t shared_bytes, private_bytes;
};

struct hip_module {
    ptx_module *ptx;
    char *text; /* of the PTX */
    hip_kernel *kernels;
    size_t n_kernels;
};

struct hip_function {
    fake_function *ptx;
    const hip_kernel *kernel;
};

/* The low byte of e_flags. */
static int machine_of(const char *arch) {
    static const struct {
        const char *arch;
        int machine;
    } rows[] = {{"gfx906", 0x2f},  {"gfx908", 0x30},  {"gfx90a", 0x3f},  {"gfx942", 0x4c},
                {"gfx1030", 0x36}, {"gfx1031", 0x37}, {"gfx1032", 0x38}, {"gfx1034", 0x3e},
                {"gfx1035", 0x3d}, {"gfx1036", 0x45}, {"gfx1100", 0x41}, {"gfx1101", 0x46},
                {"gfx1102", 0x47}, {"gfx1103", 0x44}, {"gfx1150", 0x43}, {"gfx1151", 0x4a},
                {"gfx1200", 0x48}, {"gfx1201", 0x4e}};
    for (const auto &row : rows)
        if (strcmp(row.arch, arch) == 0) return row.machine;
    return -1;
}

static const char *fake_arch(void) {
    const char *arch = getenv("FAKE_HIP_ARCH");
    return arch ? arch : FAKE_HIP_BUILT;
}

template <class T> static T read(const uint8_t *at) {
    T value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* The forms of MessagePack that clang writes. */
struct pack {
    const uint8_t *at, *end;
    bool bad;

    uint64_t number(int n_bytes) { /* big endian */
        uint64_t v = 0;
        for (int i = 0; i < n_bytes; i++) v = v << 8 | byte();
        return v;
    }
    uint8_t byte() {
        if (at < end) return *at++;
        bad = true;
        return 0;
    }
    /* Pairs of a map; elements of an array. */
    uint64_t map() {
        const uint8_t b = byte();
        if ((b & 0xf0) == 0x80) return b & 0x0f;
        if (b == 0xde) return number(2);
        return bad = true, 0;
    }
    uint64_t array() {
        const uint8_t b = byte();
        if ((b & 0xf0) == 0x90) return b & 0x0f;
        if (b == 0xdc) return number(2);
        return bad = true, 0;
    }
    void text(char *out, size_t n_out) {
        const uint8_t b = byte();
        uint64_t n = 0;
        if ((b & 0xe0) == 0xa0)
            n = b & 0x1f;
        else if (b >= 0xd9 && b <= 0xda)
            n = number(1 << (b - 0xd9));
        else
            bad = true;
        bad = bad || n > static_cast<uint64_t>(end - at) || n >= n_out;
        if (bad) n = 0;
        memcpy(out, at, n);
        out[n] = '\0';
        at += n;
    }
    uint64_t whole() {
        const uint8_t b = byte();
        if (b < 0x80) return b;
        if (b >= 0xcc && b <= 0xcf) return number(1 << (b - 0xcc));
        return bad = true, 0;
    }
    void skip() {
        if (at >= end) {
            bad = true;
            return;
        }
        const uint8_t b = *at;
        char ignored[TEXT * 4];
        if ((b & 0xf0) == 0x80 || b == 0xde) {
            for (uint64_t n = map(); n > 0 && !bad; n--) skip(), skip();
        } else if ((b & 0xf0) == 0x90 || b == 0xdc) {
            for (uint64_t n = array(); n > 0 && !bad; n--) skip();
        } else if ((b & 0xe0) == 0xa0 || b == 0xd9 || b == 0xda) {
            text(ignored, sizeof ignored);
        } else if (b == 0xc2 || b == 0xc3 || b == 0xc0) {
            at++;
        } else {
            whole();
        }
    }
};

/* Kernels take one struct by value; what follows it are the runtime's own arguments. */
static void read_args(pack &p, hip_kernel *k) {
    char key[TEXT], kind[TEXT];
    const uint64_t n_args = p.array();
    for (uint64_t i = 0; i < n_args && !p.bad; i++) {
        uint64_t size = 0, offset = 0;
        kind[0] = '\0';
        for (uint64_t n = p.map(); n > 0 && !p.bad; n--) {
            p.text(key, sizeof key);
            if (strcmp(key, ".size") == 0)
                size = p.whole();
            else if (strcmp(key, ".offset") == 0)
                offset = p.whole();
            else if (strcmp(key, ".value_kind") == 0)
                p.text(kind, sizeof kind);
            else
                p.skip();
        }
        if (i == 0 && strcmp(kind, "by_value") == 0 && offset == 0) k->arg_bytes = size;
        if (i > 0 && strncmp(kind, "hidden_", 7) != 0) p.bad = true;
    }
}

static void read_kernel(pack &p, hip_kernel *k) {
    char key[TEXT];
    memset(k, 0, sizeof *k);
    for (uint64_t n = p.map(); n > 0 && !p.bad; n--) {
        p.text(key, sizeof key);
        if (strcmp(key, ".name") == 0)
            p.text(k->name, sizeof k->name);
        else if (strcmp(key, ".args") == 0)
            read_args(p, k);
        else if (strcmp(key, ".max_flat_workgroup_size") == 0)
            k->max_threads = p.whole();
        else if (strcmp(key, ".group_segment_fixed_size") == 0)
            k->shared_bytes = p.whole();
        else if (strcmp(key, ".private_segment_fixed_size") == 0)
            k->private_bytes = p.whole();
        else
            p.skip();
    }
}

static bool read_metadata(const uint8_t *note, size_t n_note, hip_module *m) {
    pack p = {note, note + n_note, false};
    char key[TEXT];
    for (uint64_t n = p.map(); n > 0 && !p.bad; n--) {
        p.text(key, sizeof key);
        if (strcmp(key, "amdhsa.kernels") != 0) {
            p.skip();
            continue;
        }
        m->n_kernels = p.array();
        if (p.bad || m->n_kernels > MAX_KERNELS) return false;
        m->kernels = static_cast<hip_kernel *>(calloc(m->n_kernels + 1, sizeof *m->kernels));
        for (size_t i = 0; m->kernels && i < m->n_kernels && !p.bad; i++)
            read_kernel(p, &m->kernels[i]);
    }
    return !p.bad && m->kernels && m->n_kernels > 0;
}

/* Sections of an ELF file of 64 bits; the caller has checked its header. */
struct section {
    uint32_t type;
    const uint8_t *data;
    uint64_t n_bytes;
    uint32_t link;
};
static section section_at(const uint8_t *elf, unsigned i) {
    const uint8_t *at = elf + read<uint64_t>(elf + 40) + i * size_t(64);
    return {read<uint32_t>(at + 4), elf + read<uint64_t>(at + 24), read<uint64_t>(at + 32),
            read<uint32_t>(at + 40)};
}

/* A kernel's code and its descriptor, NAME.kd of 64 bytes, are dynamic symbols. */
static bool has_symbols(const uint8_t *elf, const char *name) {
    enum { DYNSYM = 11, SYMBOL = 24 };
    const unsigned n_sections = read<uint16_t>(elf + 60);
    bool code = false, descriptor = false;
    for (unsigned i = 0; i < n_sections; i++) {
        const section s = section_at(elf, i);
        if (s.type != DYNSYM) continue;
        const char *names = reinterpret_cast<const char *>(section_at(elf, s.link).data);
        for (const uint8_t *at = s.data; at < s.data + s.n_bytes; at += SYMBOL) {
            const char *own = names + read<uint32_t>(at);
            const size_t n = strlen(name);
            if (strncmp(own, name, n) != 0) continue;
            code = code || own[n] == '\0';
            descriptor = descriptor ||
                         (strcmp(own + n, ".kd") == 0 && read<uint64_t>(at + 16) == 64);
        }
    }
    return code && descriptor;
}

static int read_object(const uint8_t *elf, hip_module *m) {
    enum { SHARED_OBJECT = 3, AMDGPU = 224, HSA = 64, VERSION_4 = 2, NOTE = 7, METADATA = 32 };
    if (memcmp(elf, "\177ELF\2\1", 6) != 0) REFUSE("not a code object");
    if (read<uint16_t>(elf + 16) != SHARED_OBJECT || read<uint16_t>(elf + 18) != AMDGPU ||
        elf[7] != HSA)
        REFUSE("a file of another system or CPU");
    if (elf[8] != VERSION_4) REFUSE("version %d of code objects, expected 4", elf[8] + 2);
    const int machine = static_cast<int>(read<uint32_t>(elf + 48) & 0xff);
    if (machine != machine_of(fake_arch())) {
        fprintf(stderr, "fake HIP: code for machine 0x%x on a %s\n", machine, fake_arch());
        return FAKE_NO_BINARY;
    }
    for (unsigned i = 0; i < read<uint16_t>(elf + 60); i++) {
        const section s = section_at(elf, i);
        if (s.type != NOTE) continue;
        const uint32_t n_name = read<uint32_t>(s.data), n_text = read<uint32_t>(s.data + 4);
        if (read<uint32_t>(s.data + 8) == METADATA &&
            !read_metadata(s.data + 12 + (n_name + 3) / 4 * 4, n_text, m))
            REFUSE("metadata cannot be read");
    }
    if (!m->kernels) REFUSE("no metadata of kernels");
    for (size_t i = 0; i < m->n_kernels; i++) {
        const hip_kernel *k = &m->kernels[i];
        if (!has_symbols(elf, k->name)) REFUSE("no symbols of kernel %s", k->name);
        if (k->arg_bytes == 0 || k->max_threads == 0) REFUSE("no arguments of kernel %s", k->name);
        if (k->private_bytes > 0) REFUSE("registers or variables in memory: %s", k->name);
        if (k->shared_bytes > 65536) REFUSE("too much shared memory: %s", k->name);
    }
    return FAKE_OK;
}

/* ---- PTX --------------------------------------------------------------------------------------
 */

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return nullptr;
    fseek(file, 0, SEEK_END);
    const long n = ftell(file);
    rewind(file);
    char *text = static_cast<char *>(malloc(static_cast<size_t>(n) + 1));
    const size_t n_read = text ? fread(text, 1, static_cast<size_t>(n), file) : 0;
    if (text) text[n_read] = '\0';
    fclose(file);
    return text;
}

/* The PTX file that has the kernel. FAKE_HIP_PTX: paths, separated by colons. */
static int load_ptx(const char *kernel, hip_module *m) {
    static const char files[] = FAKE_HIP_PTX;
    char path[1024], entry[NAME_BYTES + 16];
    snprintf(entry, sizeof entry, ".entry %s(", kernel);
    for (const char *at = files; *at;) {
        const size_t n = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s", static_cast<int>(n), at);
        char *text = read_file(path);
        const bool found = text && strstr(text, entry);
        if (found) {
            m->text = text;
            return cuModuleLoadDataEx(&m->ptx, text, 0, nullptr, nullptr);
        }
        free(text);
        at += n + (at[n] == ':');
    }
    REFUSE("no PTX of kernel %s", kernel);
}

/* Bytes of the PTX kernel's parameter: ".param .align 8 .b8 NAME_param_0[144]". */
static uint64_t ptx_bytes(const char *text, const char *kernel) {
    char entry[NAME_BYTES + 16];
    snprintf(entry, sizeof entry, ".entry %s(", kernel);
    const char *at = strstr(text, entry);
    at = at ? strstr(at, "_param_0[") : nullptr;
    return at ? strtoull(at + strlen("_param_0["), nullptr, 10) : 0;
}

/* ---- devices ----------------------------------------------------------------------------------
 */

#define FAKE extern "C" __attribute__((visibility("default"))) int
static struct {
    pthread_mutex_t mutex;
    fake_context *contexts[MAX_CONTEXTS];
} fake = {PTHREAD_MUTEX_INITIALIZER, {}};

static int context_of(int device, fake_context **out) {
    int n = 0;
    cuDeviceGetCount(&n);
    if (device < 0 || device >= n || device >= MAX_CONTEXTS) return FAKE_INVALID;
    pthread_mutex_lock(&fake.mutex);
    const int e = fake.contexts[device] ? FAKE_OK
                                        : cuDevicePrimaryCtxRetain(&fake.contexts[device], device);
    *out = fake.contexts[device];
    pthread_mutex_unlock(&fake.mutex);
    return e;
}

FAKE hipInit(unsigned flags);
FAKE hipInit(unsigned flags) {
    return cuInit(flags);
}
FAKE hipDriverGetVersion(int *version);
FAKE hipDriverGetVersion(int *version) {
    *version = 60342134;
    return FAKE_OK;
}
FAKE hipGetDeviceCount(int *n);
FAKE hipGetDeviceCount(int *n) {
    return cuDeviceGetCount(n);
}
FAKE hipDeviceGet(int *device, int index);
FAKE hipDeviceGet(int *device, int index) {
    return cuDeviceGet(device, index);
}
FAKE hipDeviceGetName(char *name, int size, int device);
FAKE hipDeviceGetName(char *name, int size, int device) {
    return cuDeviceGetName(name, size, device);
}
FAKE hipDeviceGetPCIBusId(char *bus, int size, int device);
FAKE hipDeviceGetPCIBusId(char *bus, int size, int device) {
    return cuDeviceGetPCIBusId(bus, size, device);
}
FAKE hipDeviceTotalMem(size_t *n_bytes, int device);
FAKE hipDeviceTotalMem(size_t *n_bytes, int device) {
    return cuDeviceTotalMem_v2(n_bytes, device);
}

/* A card like the RX 7900 XTX, whatever its target. */
FAKE hipDeviceGetAttribute(int *value, int attribute, int device);
FAKE hipDeviceGetAttribute(int *value, int attribute, int) {
    static const struct {
        int attribute, value;
    } rows[] = {
        {16, 0},       /* integrated */
        {23, 11},      /* major */
        {59, 384},     /* bits of the memory's bus */
        {60, 1250000}, /* kHz of the memory */
        {61, 0},       /* minor */
        {63, 1},       /* units */
#if !defined(FAKE_HIP_5)
        {10017, 100000}, /* kHz of the clock */
#endif
    };
    for (const auto &row : rows) {
        if (row.attribute != attribute) continue;
        *value = row.value;
        return FAKE_OK;
    }
    REFUSE("unknown attribute %d", attribute);
}

/* All bytes but the name's and the target's are others' text: to read at the wrong place is
 * noticed. */
static int fill_properties(void *properties, size_t n_bytes, size_t target_at, int device) {
    char *to = static_cast<char *>(properties);
    memset(to, 'x', n_bytes);
    snprintf(to + target_at, 256, "%s:sramecc+:xnack-", fake_arch());
    return cuDeviceGetName(to, 256, device);
}
#if defined(FAKE_HIP_5)
FAKE hipGetDeviceProperties(void *properties, int device);
FAKE hipGetDeviceProperties(void *properties, int device) {
    return fill_properties(properties, 792, 396, device);
}
#else
FAKE hipGetDevicePropertiesR0600(void *properties, int device);
FAKE hipGetDevicePropertiesR0600(void *properties, int device) {
    return fill_properties(properties, 1472, 1160, device);
}
FAKE hipGetDeviceProperties(void *properties, int device);
FAKE hipGetDeviceProperties(void *, int) {
    REFUSE("hipGetDeviceProperties of ROCm 5 on ROCm 6");
}
FAKE hipDrvGetErrorString(int result, const char **text);
FAKE hipDrvGetErrorString(int result, const char **text) {
    *text = problem;
    return result == FAKE_INVALID && problem[0] ? FAKE_OK : cuGetErrorString(result, text);
}
#endif
FAKE hipDeviceCanAccessPeer(int *can, int from, int to);
FAKE hipDeviceCanAccessPeer(int *can, int from, int to) {
    return cuDeviceCanAccessPeer(can, from, to);
}
FAKE hipSetDevice(int device);
FAKE hipSetDevice(int device) {
    fake_context *c = nullptr;
    const int e = context_of(device, &c);
    return e ? e : cuCtxSetCurrent(c);
}
FAKE hipDeviceEnablePeerAccess(int peer, unsigned flags);
FAKE hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    fake_context *c = nullptr;
    const int e = context_of(peer, &c);
    return e ? e : cuCtxEnablePeerAccess(c, flags);
}

/* ---- memory -----------------------------------------------------------------------------------
 */

FAKE hipMemGetInfo(size_t *available, size_t *total);
FAKE hipMemGetInfo(size_t *available, size_t *total) {
    return cuMemGetInfo_v2(available, total);
}
FAKE hipMalloc(void **out, size_t n_bytes);
FAKE hipMalloc(void **out, size_t n_bytes) {
    return cuMemAlloc_v2(out, n_bytes);
}
FAKE hipExtMallocWithFlags(void **out, size_t n_bytes, unsigned flags);
FAKE hipExtMallocWithFlags(void **out, size_t n_bytes, unsigned flags) {
    if (flags != 1) REFUSE("device memory that is not fine-grained");
    return cuMemAlloc_v2(out, n_bytes);
}
FAKE hipFree(void *p);
FAKE hipFree(void *p) {
    return cuMemFree_v2(p);
}
FAKE hipHostMalloc(void **out, size_t n_bytes, unsigned flags);
FAKE hipHostMalloc(void **out, size_t n_bytes, unsigned flags) {
    enum { PORTABLE = 1, MAPPED = 2, COHERENT = 0x40000000 };
    if (flags != (PORTABLE | MAPPED | COHERENT)) REFUSE("flags 0x%x of pinned memory", flags);
    return cuMemHostAlloc(out, n_bytes, PORTABLE | MAPPED);
}
FAKE hipHostGetDevicePointer(void **device, void *p, unsigned flags);
FAKE hipHostGetDevicePointer(void **device, void *p, unsigned flags) {
    return cuMemHostGetDevicePointer_v2(device, p, flags);
}
FAKE hipHostFree(void *p);
FAKE hipHostFree(void *p) {
    return cuMemFreeHost(p);
}

/* ---- streams, events, programs ----------------------------------------------------------------
 */

FAKE hipStreamCreateWithFlags(gpu_stream **out, unsigned flags);
FAKE hipStreamCreateWithFlags(gpu_stream **out, unsigned flags) {
    if (flags != 1) REFUSE("a stream that waits for the legacy stream");
    return cuStreamCreate(out, flags);
}
FAKE hipStreamDestroy(gpu_stream *s);
FAKE hipStreamDestroy(gpu_stream *s) {
    return cuStreamDestroy_v2(s);
}
FAKE hipStreamSynchronize(gpu_stream *s);
FAKE hipStreamSynchronize(gpu_stream *s) {
    return cuStreamSynchronize(s);
}
FAKE hipStreamWaitEvent(gpu_stream *s, gpu_event *e, unsigned flags);
FAKE hipStreamWaitEvent(gpu_stream *s, gpu_event *e, unsigned flags) {
    return cuStreamWaitEvent(s, e, flags);
}
FAKE hipEventCreateWithFlags(gpu_event **out, unsigned flags);
FAKE hipEventCreateWithFlags(gpu_event **out, unsigned flags) {
    return cuEventCreate(out, flags);
}
FAKE hipEventDestroy(gpu_event *e);
FAKE hipEventDestroy(gpu_event *e) {
    return cuEventDestroy_v2(e);
}
FAKE hipEventRecord(gpu_event *e, gpu_stream *s);
FAKE hipEventRecord(gpu_event *e, gpu_stream *s) {
    return cuEventRecord(e, s);
}
FAKE hipEventQuery(gpu_event *e);
FAKE hipEventQuery(gpu_event *e) {
    return cuEventQuery(e);
}
FAKE hipEventElapsedTime(float *ms, gpu_event *from, gpu_event *to);
FAKE hipEventElapsedTime(float *ms, gpu_event *from, gpu_event *to) {
    return cuEventElapsedTime(ms, from, to);
}
FAKE hipMemcpyHtoDAsync(void *to, const void *from, size_t n, gpu_stream *s);
FAKE hipMemcpyHtoDAsync(void *to, const void *from, size_t n, gpu_stream *s) {
    return cuMemcpyHtoDAsync_v2(to, from, n, s);
}
FAKE hipMemcpyDtoHAsync(void *to, const void *from, size_t n, gpu_stream *s);
FAKE hipMemcpyDtoHAsync(void *to, const void *from, size_t n, gpu_stream *s) {
    return cuMemcpyDtoHAsync_v2(to, from, n, s);
}
FAKE hipMemcpyDtoDAsync(void *to, const void *from, size_t n, gpu_stream *s);
FAKE hipMemcpyDtoDAsync(void *to, const void *from, size_t n, gpu_stream *s) {
    return cuMemcpyDtoDAsync_v2(to, from, n, s);
}
FAKE hipMemsetAsync(void *to, int value, size_t n, gpu_stream *s);
FAKE hipMemsetAsync(void *to, int value, size_t n, gpu_stream *s) {
    return cuMemsetD8Async(to, static_cast<unsigned char>(value), n, s);
}
FAKE hipStreamBeginCapture(gpu_stream *s, int mode);
FAKE hipStreamBeginCapture(gpu_stream *s, int mode) {
    if (mode != 2) REFUSE("a capture that restricts other threads");
    return cuStreamBeginCapture_v2(s, mode);
}
FAKE hipStreamEndCapture(gpu_stream *s, fake_graph **out);
FAKE hipStreamEndCapture(gpu_stream *s, fake_graph **out) {
    return cuStreamEndCapture(s, out);
}
FAKE hipGraphDestroy(fake_graph *g);
FAKE hipGraphDestroy(fake_graph *g) {
    return cuGraphDestroy(g);
}
FAKE hipGraphInstantiateWithFlags(gpu_program **out, fake_graph *g, unsigned long long flags);
FAKE hipGraphInstantiateWithFlags(gpu_program **out, fake_graph *g, unsigned long long flags) {
    return cuGraphInstantiateWithFlags(out, g, flags);
}
FAKE hipGraphExecDestroy(gpu_program *p);
FAKE hipGraphExecDestroy(gpu_program *p) {
    return cuGraphExecDestroy(p);
}
FAKE hipGraphLaunch(gpu_program *p, gpu_stream *s);
FAKE hipGraphLaunch(gpu_program *p, gpu_stream *s) {
    return cuGraphLaunch(p, s);
}

/* ---- kernels ----------------------------------------------------------------------------------
 */

FAKE hipModuleLoadDataEx(hip_module **out, const void *image, unsigned n, int *options,
                         void **values);
FAKE hipModuleLoadDataEx(hip_module **out, const void *image, unsigned n, int *, void **) {
    if (n != 0) REFUSE("options of CUDA's translator");
    hip_module *m = static_cast<hip_module *>(calloc(1, sizeof *m));
    if (!m) return FAKE_NO_MEMORY;
    int e = read_object(static_cast<const uint8_t *>(image), m);
    if (e == FAKE_OK) e = load_ptx(m->kernels[0].name, m);
    *out = m; /* modules stay */
    return e;
}
FAKE hipModuleGetFunction(hip_function **out, hip_module *m, const char *name);
FAKE hipModuleGetFunction(hip_function **out, hip_module *m, const char *name) {
    for (size_t i = 0; i < m->n_kernels; i++) {
        if (strcmp(m->kernels[i].name, name) != 0) continue;
        if (ptx_bytes(m->text, name) != m->kernels[i].arg_bytes)
            REFUSE("%s: other arguments in PTX", name);
        hip_function *f = static_cast<hip_function *>(calloc(1, sizeof *f));
        if (!f) return FAKE_NO_MEMORY;
        f->kernel = &m->kernels[i];
        *out = f;
        return cuModuleGetFunction(&f->ptx, m->ptx, name);
    }
    return FAKE_NOT_FOUND;
}
/* AMD's packets count the threads of each dimension in 32 bits. */
FAKE hipModuleLaunchKernel(hip_function *f, unsigned x, unsigned y, unsigned z, unsigned threads,
                           unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                           gpu_stream *s, void **params, void **extra);
FAKE hipModuleLaunchKernel(hip_function *f, unsigned x, unsigned y, unsigned z, unsigned threads,
                           unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                           gpu_stream *s, void **params, void **extra) {
    const hip_kernel *k = f->kernel;
    if (threads == 0 || threads > k->max_threads || threads_y != 1 || threads_z != 1)
        REFUSE("%s: %u threads of a block, at most %llu", k->name, threads,
               static_cast<unsigned long long>(k->max_threads));
    if (static_cast<uint64_t>(x) * threads > UINT32_MAX || y > UINT16_MAX || z > UINT16_MAX)
        REFUSE("%s: a grid of %u, %u, %u", k->name, x, y, z);
    return cuLaunchKernel(f->ptx, x, y, z, threads, threads_y, threads_z, shared_bytes, s, params,
                          extra);
}
