/* fuzz_model.c: whole commands on damaged models. A small valid model is split into keys and
 * tensors, changed by structure (a value, a type, a shape, an offset, a weight, ...), written as a
 * file again, and passed to the program's own main().
 *
 * An input is a recipe: a byte for the model, a byte for the commands, then changes of eight bytes
 * each: what, where (2), how, and a number (4). So every input is a nearly valid model, and a
 * recipe stays short. In addition to the checks of sanitizers, a command must end within seconds,
 * either with status 0 and readable outputs, or with one error message and no output. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bundled_file.h"
#include "cli_inside.h"
#include "fuzz_target.h"
#include "gguf_impl.h"
#include "layer_embd_model.h"
#include "tiny_model.h"

enum {
    N_MODELS = 10,
    BUNDLED = 8, /* index of the model with bundled neurons */
    STREAMS = 9, /* index of the model with several residual streams and embeddings per layer */
    MAX_KEYS = 80,
    MAX_TENSORS = 140,
    MAX_CHANGES = 12,
    CHANGE_BYTES = 8,
    MAX_FILE = 4 << 20,
    MAX_SECONDS = 60, /* limit of one command, under a sanitizer on a busy machine */
    PATH_ROOM = 256,
    LINE_ROOM = 1024,
    MAX_WORDS = 24
};

typedef struct part {
    uint8_t *data;
    size_t n;
} part;

typedef struct made_key {
    part name, value; /* arrays include their item type and count */
    uint32_t type;
} made_key;

typedef struct made_tensor {
    part name, data;
    uint32_t n_dims, type;
    uint64_t dims[GGUF_MAX_DIMS + 1];
    uint64_t offset;
    bool has_offset; /* false: the offset of the data as written */
} made_tensor;

typedef struct made_file {
    char magic[4];
    uint32_t version;
    int n_keys, n_tensors;
    uint64_t more_keys, more_tensors; /* extra counts that the header claims */
    made_key keys[MAX_KEYS];
    made_tensor tensors[MAX_TENSORS];
    size_t align; /* alignment of tensors, from the unchanged keys */
    size_t cut;   /* bytes left out at the end */
} made_file;

/* ---- the valid models ------------------------------------------------------------------------ */

static char folder[PATH_ROOM], model_path[PATH_ROOM], out_path[PATH_ROOM], text_path[PATH_ROOM],
    ids_path[PATH_ROOM];

static tiny_model describe(int number) {
    static const char *const archs[N_MODELS] = {"llama", "llama", "bamboo", "qwen3", "falcon",
                                                "opt",   "llama", "llama",  "llama"};
    static const char *const types[N_MODELS] = {"f16", "q8_0", "q4_0", "bf16", "f32",
                                                "f16", "f16",  "q4_0", "q4_0"};
    tiny_model t = tiny_default();
    t.arch = archs[number];
    t.type = types[number];
    t.n_embd = 64;
    t.head_dim = t.n_rot = 16;
    for (int i = 0; i < TINY_MAX_LAYERS; i++) t.n_ff[i] = i % 2 ? 96 : 128;
    t.n_vocab = 270;
    t.vocabulary = true;
    t.tied = number % 2;
    if (number == 1 || number == BUNDLED) {
        t.activation = "relu";
        t.sparse = (tiny_sparse){.down_t = true, .predictor = "lowrank", .rank = 32};
    } else if (number == 2) {
        t.sparse = (tiny_sparse){.down_t = true, .predictor = "sign"};
    } else if (number == 5) {
        t.n_pos = 64;
        t.qkv_bias = t.out_bias = t.ffn_bias = true;
    } else if (number == 6) {
        t.activation = "relu";
        t.sparse = (tiny_sparse){.pwri = true, .down_t = true, .predictor = "relu_mlp", .rank = 32};
    } else if (number == 7) {
        t.sparse = (tiny_sparse){.down_t = true, .cut = 0.1f};
    }
    return t;
}

static part copy_bytes(const void *data, size_t n) {
    part p = {malloc(n ? n : 1), n};
    if (!p.data) abort();
    if (n) memcpy(p.data, data, n);
    return p;
}

static part copy_value(const gguf_value *v) {
    size_t n = gguf_value_bytes(v);
    if (v->type != GGUF_ARRAY) return copy_bytes(v->data, n);
    part p = {malloc(12 + n), 12 + n};
    if (!p.data) abort();
    gguf_store_u32(p.data, (uint32_t)v->item_type);
    gguf_store_u64(p.data + 4, v->count);
    memcpy(p.data + 12, v->data, n);
    return p;
}

/* The tests' writer writes the model, and the program's reader splits it. */
static void load_model(int number, made_file *m) {
    tiny_model t = describe(number);
    if (number == STREAMS)
        ple_write_streams(model_path, QUANT_Q8_0, 0);
    else
        tiny_write(&t, model_path);
    if (number == BUNDLED) {
        bundled_write(model_path, out_path, 0);
        if (rename(out_path, model_path) != 0) abort();
    }
    gguf_file *f;
    if (gguf_open(model_path, NULL, &f, NULL) != PI_OK) abort();
    memcpy(m->magic, gguf_is_pwri(f) ? "PWRI" : "GGUF", 4);
    m->version = gguf_version(f);
    m->align = gguf_alignment(f);
    m->n_keys = (int)gguf_n_values(f);
    m->n_tensors = (int)gguf_n_tensors(f);
    if (m->n_keys > MAX_KEYS || m->n_tensors > MAX_TENSORS) abort();
    for (int i = 0; i < m->n_keys; i++) {
        const gguf_value *v = gguf_value_at(f, (uint64_t)i);
        m->keys[i] = (made_key){copy_bytes(v->key.data, v->key.n_bytes), copy_value(v),
                                (uint32_t)v->type};
    }
    for (int i = 0; i < m->n_tensors; i++) {
        const gguf_tensor *x = gguf_tensor_at(f, (uint64_t)i);
        made_tensor *made = &m->tensors[i];
        made->name = copy_bytes(x->name, strlen(x->name));
        made->data = copy_bytes(x->data, x->n_bytes);
        made->n_dims = (uint32_t)x->n_dims;
        made->type = (uint32_t)x->type;
        memcpy(made->dims, x->dims, sizeof x->dims);
    }
    gguf_close(f);
}

/* Makes a deep copy for the changes. */
static void copy_file(const made_file *from, made_file *to) {
    *to = *from;
    for (int i = 0; i < to->n_keys; i++) {
        to->keys[i].name = copy_bytes(from->keys[i].name.data, from->keys[i].name.n);
        to->keys[i].value = copy_bytes(from->keys[i].value.data, from->keys[i].value.n);
    }
    for (int i = 0; i < to->n_tensors; i++) {
        to->tensors[i].name = copy_bytes(from->tensors[i].name.data, from->tensors[i].name.n);
        to->tensors[i].data = copy_bytes(from->tensors[i].data.data, from->tensors[i].data.n);
    }
}

static void free_file(made_file *m) {
    for (int i = 0; i < m->n_keys; i++) {
        free(m->keys[i].name.data);
        free(m->keys[i].value.data);
    }
    for (int i = 0; i < m->n_tensors; i++) {
        free(m->tensors[i].name.data);
        free(m->tensors[i].data.data);
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

typedef struct change {
    uint8_t what, how;
    uint16_t where;
    uint32_t number;
} change;

/* Returns a number that fails somewhere, or one near the old number. */
static uint64_t odd_number(const change *c, uint64_t old) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     3,
                                     31,
                                     33,
                                     127,
                                     255,
                                     256,
                                     65535,
                                     65536,
                                     1u << 20,
                                     INT32_MAX,
                                     UINT32_MAX,
                                     UINT64_C(1) << 31,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX,
                                     UINT64_MAX - 31};
    switch (c->how % 8) {
    case 0:
        return old + 1;
    case 1:
        return old - 1;
    case 2:
        return old * 2;
    case 3:
        return old / 2;
    case 4:
        return c->number;
    case 5:
        return c->number % 300;
    default:
        return edges[c->number % (sizeof edges / sizeof *edges)];
    }
}

/* Returns the bits of a float32 that fails somewhere. */
static uint32_t odd_float(const change *c) {
    static const uint32_t edges[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x80000000, 0,
                                     0x00000001, 0x7f7fffff, 0xff7fffff, 0xbf800000, 0x3f800001};
    return edges[c->number % (sizeof edges / sizeof *edges)];
}

static size_t scalar_bytes(uint32_t type) {
    return gguf_scalar_bytes((gguf_value_type)type);
}

static void put_number(uint8_t *at, size_t width, uint64_t v) {
    for (size_t i = 0; i < width && i < 8; i++) at[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_number(const uint8_t *at, size_t width) {
    uint64_t v = 0;
    for (size_t i = 0; i < width && i < 8; i++) v |= (uint64_t)at[i] << (8 * i);
    return v;
}

/* Changes a scalar or an item of an array. */
static void change_number(const change *c, uint32_t type, uint8_t *at) {
    if (type == GGUF_F32)
        put_number(at, 4, odd_float(c));
    else
        put_number(at, scalar_bytes(type), odd_number(c, get_number(at, scalar_bytes(type))));
}

static void change_value(made_file *m, const change *c) {
    if (!m->n_keys) return;
    made_key *k = &m->keys[c->where % m->n_keys];
    if (scalar_bytes(k->type) && k->value.n >= scalar_bytes(k->type)) {
        change_number(c, k->type, k->value.data);
    } else if (k->type == GGUF_STRING && k->value.n > 8) {
        k->value.data[8 + c->number % (k->value.n - 8)] = c->how;
    } else if (k->type == GGUF_ARRAY && k->value.n > 12) {
        uint32_t item = (uint32_t)get_number(k->value.data, 4);
        size_t width = scalar_bytes(item), n = k->value.n - 12;
        if (width && n >= width)
            change_number(c, item, k->value.data + 12 + (c->number / 32 % (n / width)) * width);
        else
            k->value.data[12 + c->number % n] = c->how;
    }
}

/* Changes the count of an array or the length of a string. */
static void change_count(made_file *m, const change *c) {
    if (!m->n_keys) return;
    made_key *k = &m->keys[c->where % m->n_keys];
    uint8_t *at = k->type == GGUF_ARRAY ? k->value.data + 4 : k->value.data;
    if (k->value.n >= 12 && (k->type == GGUF_ARRAY || k->type == GGUF_STRING))
        put_number(at, 8, odd_number(c, get_number(at, 8)));
}

static void change_key_type(made_file *m, const change *c) {
    if (!m->n_keys) return;
    made_key *k = &m->keys[c->where % m->n_keys];
    if (k->type == GGUF_ARRAY && c->how % 2)
        put_number(k->value.data, 4, c->number % 14);
    else
        k->type = c->number % 14;
}

static void drop_key(made_file *m, const change *c) {
    if (!m->n_keys) return;
    int i = c->where % m->n_keys;
    free(m->keys[i].name.data);
    free(m->keys[i].value.data);
    m->keys[i] = m->keys[--m->n_keys];
}

/* Gives a key the value of another key. */
static void mix_keys(made_file *m, const change *c) {
    if (!m->n_keys) return;
    made_key *k = &m->keys[c->where % m->n_keys];
    const made_key *from = &m->keys[c->number % (uint32_t)m->n_keys];
    if (k == from) return;
    free(k->value.data);
    k->value = copy_bytes(from->value.data, from->value.n);
    k->type = from->type;
}

/* Gives the data the size that type and shape require, if possible. */
static void fit_data(made_tensor *t) {
    const quant_traits *traits = quant_find(t->type);
    uint64_t n_rows = 1;
    size_t row_bytes;
    for (uint32_t d = 1; d < t->n_dims && d < GGUF_MAX_DIMS; d++)
        n_rows = t->dims[d] < MAX_FILE ? n_rows * t->dims[d] % MAX_FILE : 0;
    if (!traits || t->dims[0] > MAX_FILE ||
        !quant_row_bytes(traits->type, t->dims[0], &row_bytes) || t->data.n == 0 ||
        row_bytes > MAX_FILE || row_bytes * n_rows > MAX_FILE)
        return;
    size_t n = row_bytes * n_rows;
    uint8_t *data = malloc(n ? n : 1);
    if (!data) abort();
    for (size_t i = 0; i < n; i++) data[i] = t->data.data[i % t->data.n];
    free(t->data.data);
    t->data = (part){data, n};
}

static void change_shape(made_file *m, const change *c) {
    if (!m->n_tensors) return;
    made_tensor *t = &m->tensors[c->where % m->n_tensors];
    if (c->how >= 240) {
        t->n_dims = c->number % 6;
        for (uint32_t i = 0; i < 5; i++) t->dims[i] += t->dims[i] == 0;
    } else if (c->how >= 224) {
        uint64_t first = t->dims[0];
        t->dims[0] = t->dims[1];
        t->dims[1] = first;
    } else {
        uint64_t *dim = &t->dims[c->number / 32 % 2];
        *dim = odd_number(c, *dim);
    }
    if (c->number / 64 % 2) fit_data(t);
}

static void change_tensor_type(made_file *m, const change *c) {
    if (!m->n_tensors) return;
    made_tensor *t = &m->tensors[c->where % m->n_tensors];
    t->type = c->number % 42;
    if (c->how % 4) fit_data(t);
}

static void change_offset(made_file *m, const change *c) {
    if (!m->n_tensors) return;
    made_tensor *t = &m->tensors[c->where % m->n_tensors];
    t->has_offset = true;
    t->offset = c->how % 2 ? c->number % 4096 * 32 : odd_number(c, 32);
}

static void drop_tensor(made_file *m, const change *c) {
    if (!m->n_tensors) return;
    int i = c->where % m->n_tensors;
    free(m->tensors[i].name.data);
    free(m->tensors[i].data.data);
    m->tensors[i] = m->tensors[--m->n_tensors];
}

/* Gives a tensor the name of another: one name is missing, one occurs twice. */
static void mix_tensors(made_file *m, const change *c) {
    if (!m->n_tensors) return;
    made_tensor *t = &m->tensors[c->where % m->n_tensors];
    made_tensor *other = &m->tensors[c->number % (uint32_t)m->n_tensors];
    part name = t->name;
    if (c->how % 2 || t == other) { /* exchanges the names */
        t->name = other->name;
        other->name = name;
    } else {
        t->name = copy_bytes(other->name.data, other->name.n);
        free(name.data);
    }
}

/* Changes one weight, a run of bytes, or a whole tensor. */
static void change_weights(made_file *m, const change *c) {
    if (!m->n_tensors) return;
    made_tensor *t = &m->tensors[c->where % m->n_tensors];
    if (t->data.n < 4) return;
    size_t at = c->number / 16 % (t->data.n / 4) * 4, n = c->how >= 192 ? t->data.n - at : 4;
    uint32_t bits = odd_float(c);
    if (c->how % 4 == 3) /* the same value as a half, twice */
        bits = (bits >> 16 & 0xfc00u) * 0x10001u;
    for (size_t i = 0; i + 4 <= n; i += 4) put_number(t->data.data + at + i, 4, bits);
}

/* Changes a size consistently in keys and shapes. */
static void change_size(made_file *m, const change *c) {
    if (!m->n_keys) return;
    made_key *k = &m->keys[c->where % m->n_keys];
    if (k->type != GGUF_U32 || k->value.n < 4) return;
    uint64_t old = get_number(k->value.data, 4), size = odd_number(c, old) % 2048;
    if (old == 0 || size == 0) return;
    put_number(k->value.data, 4, size);
    for (int i = 0; i < m->n_tensors; i++) {
        made_tensor *t = &m->tensors[i];
        for (uint32_t d = 0; d < t->n_dims && d < GGUF_MAX_DIMS; d++) {
            if (t->dims[d] != old) continue;
            t->dims[d] = size;
            fit_data(t);
        }
    }
}

static void change_header(made_file *m, const change *c) {
    switch (c->how % 4) {
    case 0:
        m->version = (uint32_t)odd_number(c, m->version);
        break;
    case 1:
        m->more_keys = odd_number(c, 0);
        break;
    case 2:
        m->more_tensors = odd_number(c, 0);
        break;
    default:
        memcpy(m->magic, c->number % 2 ? "PWRI" : "GGUF", 4);
        break;
    }
}

static void cut_end(made_file *m, const change *c) {
    m->cut = c->number % (c->how % 2 ? 64 : 1 << 16);
}

static void apply_change(made_file *m, const change *c) {
    static void (*const changes[])(made_file *, const change *) = {
        change_value,  change_value, change_value,  change_count,   change_key_type,
        drop_key,      mix_keys,     change_shape,  change_shape,   change_tensor_type,
        change_offset, drop_tensor,  mix_tensors,   change_weights, change_weights,
        change_size,   change_size,  change_header, cut_end};
    changes[c->what % (sizeof changes / sizeof *changes)](m, c);
}

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct sink {
    uint8_t *data;
    size_t n;
} sink;

static void put_bytes(sink *s, const void *data, size_t n) {
    if (n > MAX_FILE - s->n) n = MAX_FILE - s->n;
    if (n) memcpy(s->data + s->n, data, n);
    s->n += n;
}

static void put_u64(sink *s, uint64_t v, size_t width) {
    uint8_t bytes[8];
    put_number(bytes, 8, v);
    put_bytes(s, bytes, width);
}

static void put_padding(sink *s, size_t align) {
    static const uint8_t zeros[4096];
    put_bytes(s, zeros, (align - s->n % align) % align);
}

static void write_model(const made_file *m) {
    static uint8_t bytes[MAX_FILE];
    sink s = {bytes, 0};
    put_bytes(&s, m->magic, 4);
    put_u64(&s, m->version, 4);
    put_u64(&s, (uint64_t)m->n_tensors + m->more_tensors, 8);
    put_u64(&s, (uint64_t)m->n_keys + m->more_keys, 8);
    for (int i = 0; i < m->n_keys; i++) {
        put_u64(&s, m->keys[i].name.n, 8);
        put_bytes(&s, m->keys[i].name.data, m->keys[i].name.n);
        put_u64(&s, m->keys[i].type, 4);
        put_bytes(&s, m->keys[i].value.data, m->keys[i].value.n);
    }
    uint64_t offset = 0;
    for (int i = 0; i < m->n_tensors; i++) {
        const made_tensor *t = &m->tensors[i];
        put_u64(&s, t->name.n, 8);
        put_bytes(&s, t->name.data, t->name.n);
        put_u64(&s, t->n_dims, 4);
        for (uint32_t d = 0; d < t->n_dims; d++) put_u64(&s, t->dims[d], 8);
        put_u64(&s, t->type, 4);
        put_u64(&s, t->has_offset ? t->offset : offset, 8);
        offset += (t->data.n + m->align - 1) / m->align * m->align;
    }
    for (int i = 0; i < m->n_tensors; i++) {
        put_padding(&s, m->align);
        put_bytes(&s, m->tensors[i].data.data, m->tensors[i].data.n);
    }
    put_padding(&s, m->align);
    FILE *f = fopen(model_path, "wb");
    size_t n = m->cut < s.n ? s.n - m->cut : 0;
    if (!f || fwrite(s.data, 1, n, f) != n || fclose(f) != 0) abort();
}

/* ---- the commands ---------------------------------------------------------------------------- */

/* M, O, T, I: the model, the output, a text, token ids. */
static const char *const commands[] = {
    "run -q -m M -p ab -n 2 -t 1 -c 16 --temp 0",
    "inspect M",
    "tokenize -m M --ids --special -p ab<s>",
    "eval -q -m M --tokens I --logits-out O -t 1 -c 16",
    "quantize -q M O q4_0 1 --allow-requantize",
    "prepare -q M -o O --calibration T --calibration-tokens 256 --calibration-window 32 -t 1",
    "inspect M --json -v",
    "prepare -q --undo M -o O -t 1",
    "imatrix -q -m M -f T -c 16 --chunks 2 -o O -t 1",
    "run -q -m M -p ab -n 2 -t 2 -c 16 --temp 0 --mode dense --no-mmap",
    "perplexity -q -m M -f T -c 16 --first 2 -t 1",
    "place -m M --vram-budget 1 --profile rtx-3060-ddr4 --json",
    "inspect M --plan",
    "prepare -q M -o O --bundle all --calibration-tokens 256 --calibration-window 32 -t 1",
    "prepare -q M -o O --bundle none --calibration T --calibration-tokens 256 "
    "--calibration-window 32 -t 1",
};
enum { N_COMMANDS = sizeof commands / sizeof *commands, COMMANDS_PER_INPUT = 3 };

static void too_slow(int number) {
    (void)number;
    static const char text[] = "fuzz_model: a command does not end\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n;
    abort();
}

static int count_files(void) {
    int n = 0;
    DIR *dir = opendir(folder);
    if (!dir) abort();
    for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    closedir(dir);
    return n;
}

static void give_up(const char *line, const cli_result *r, const char *why) {
    fprintf(stderr, "%s\n%s: status %d, said: %s\n", line, why, r->status, r->err);
    abort();
}

static void check(const char *line, const cli_result *r, int n_files) {
    bool has_output = access(out_path, F_OK) == 0;
    if (r->status == 0) {
        gguf_file *f;
        bool model = has_output && strncmp(line, "eval", 4) != 0;
        if (model && gguf_open(out_path, NULL, &f, NULL) != PI_OK)
            give_up(line, r, "cannot read what it wrote");
        if (model) gguf_close(f);
    } else {
        /* `run` first ends the line of its text */
        const char *said = r->err + (r->err[0] == '\n');
        if (r->status > 2 || !cli_is_message(said)) give_up(line, r, "not one line");
        if (has_output) give_up(line, r, "failed and left an output");
    }
    unlink(out_path);
    if (count_files() != n_files) give_up(line, r, "left a file");
}

static void run_command(const char *text) {
    char line[LINE_ROOM];
    const char *words[MAX_WORDS];
    int n = 0, n_files = count_files();
    snprintf(line, sizeof line, "%s", text);
    for (char *word = line, *next; *word && n < MAX_WORDS; word = next) {
        next = word + strcspn(word, " ");
        if (*next) *next++ = 0;
        bool path = word[1] == 0 && strchr("MOTI", *word);
        words[n++] = !path          ? word
                     : *word == 'M' ? model_path
                     : *word == 'O' ? out_path
                     : *word == 'T' ? text_path
                                    : ids_path;
    }
    alarm(MAX_SECONDS);
    cli_result r = cli_inside(n, words);
    alarm(0);
    check(text, &r, n_files);
    cli_result_free(&r);
}

/* ---- the target ------------------------------------------------------------------------------ */

static made_file models[N_MODELS];

static void remove_folder(void) {
    unlink(model_path);
    unlink(text_path);
    unlink(ids_path);
    rmdir(folder);
}

static void write_text(const char *path, const char *line, int times) {
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    for (int i = 0; i < times; i++) fprintf(f, line, i);
    if (fclose(f) != 0) abort();
}

static void set_up(void) {
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.200s/fuzz_model.XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(folder)) abort();
    snprintf(model_path, sizeof model_path, "%.230s/model.gguf", folder);
    snprintf(out_path, sizeof out_path, "%.230s/out.gguf", folder);
    snprintf(text_path, sizeof text_path, "%.230s/text", folder);
    snprintf(ids_path, sizeof ids_path, "%.230s/ids", folder);
    atexit(remove_folder);
    write_text(text_path, "a line of text, number %d. ", 40);
    write_text(ids_path, "%d ", 6);
    for (int i = 0; i < N_MODELS; i++) load_model(i, &models[i]);
    signal(SIGALRM, too_slow);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static made_file m;
    if (!folder[0]) set_up();
    if (n < 2) return 0;
    copy_file(&models[data[0] % N_MODELS], &m);
    size_t at = 2;
    for (int i = 0; i < MAX_CHANGES && n - at >= CHANGE_BYTES; i++, at += CHANGE_BYTES) {
        change c = {.what = data[at],
                    .where = gguf_load_u16(data + at + 1),
                    .how = data[at + 3],
                    .number = gguf_load_u32(data + at + 4)};
        apply_change(&m, &c);
    }
    write_model(&m);
    free_file(&m);
    bool all = data[1] == UINT8_MAX;
    for (int i = 0; i < (all ? (int)N_COMMANDS : COMMANDS_PER_INPUT); i++)
        run_command(commands[(data[1] + i) % N_COMMANDS]);
    return 0;
}

/* Every model unchanged, through every command; then with one change of every kind. */
size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    enum { N_KINDS = 19 };
    if (i >= N_MODELS + N_KINDS || max < 2 + CHANGE_BYTES) return 0;
    memset(data, 0, 2 + CHANGE_BYTES);
    data[0] = (uint8_t)i;
    data[1] = UINT8_MAX;
    if (i < N_MODELS) return 2;
    data[1] = (uint8_t)i;
    data[2] = (uint8_t)(i - N_MODELS);
    data[3] = (uint8_t)(7 * i);
    data[5] = (uint8_t)i;
    data[6] = (uint8_t)(3 * i);
    return 2 + CHANGE_BYTES;
}
