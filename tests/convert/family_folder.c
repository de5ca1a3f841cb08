/* family_folder.c: see family_folder.h. Tensors are split into stacks of rows of bytes; a vector
 * has rows of one element. */
#include "family_folder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "affix.h"

/* ---- families.txt ---------------------------------------------------------------------------- */

enum { MAX_BLOCKS = 64 };

typedef struct block {
    char name[32];
    family_rule rules[FAMILY_MAX_RULES];
    int n_rules;
} block;

static void add_rule(family_rule *rules, int *n_rules, const family_rule *rule) {
    assert_true(*n_rules < FAMILY_MAX_RULES);
    rules[(*n_rules)++] = *rule;
}

static family_rule parse_rule(const char *line) {
    family_rule rule = {.n_inputs = 0};
    char arrow[8];
    int n = sscanf(line, "%127s %7s %31s %95s %95s %95s", rule.name, arrow, rule.op, rule.inputs[0],
                   rule.inputs[1], rule.inputs[2]);
    if (n < 4 || strcmp(arrow, "<-") != 0) fail_msg("families.txt: %s", line);
    rule.n_inputs = n - 3;
    return rule;
}

static void use_blocks(const block *blocks, int n_blocks, const char *names, family_rule *rules,
                       int *n_rules) {
    char name[32];
    int used = 0;
    for (; sscanf(names, "%31s%n", name, &used) == 1; names += used) {
        int i = 0;
        while (i < n_blocks && strcmp(blocks[i].name, name) != 0) i++;
        if (i == n_blocks) fail_msg("families.txt: no block %s", name);
        for (int k = 0; k < blocks[i].n_rules; k++) add_rule(rules, n_rules, &blocks[i].rules[k]);
    }
}

int family_read(family_case *cases) {
    static block blocks[MAX_BLOCKS];
    int n_blocks = 0, n_cases = 0, *n_rules = NULL;
    family_rule *rules = NULL;
    FILE *file = fopen(TEST_SOURCE_DIR "/tests/convert/families.txt", "r");
    assert_non_null(file);
    char line[1024];
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || line[0] == '\n') continue;
        if (line[0] == '@') {
            assert_true(n_blocks < MAX_BLOCKS);
            block *b = &blocks[n_blocks++];
            *b = (block){.n_rules = 0};
            assert_int_equal(sscanf(line, "@%31s", b->name), 1);
            rules = b->rules;
            n_rules = &b->n_rules;
        } else if (starts_with(line, "file ")) {
            assert_true(n_cases < FAMILY_MAX_CASES);
            family_case *c = &cases[n_cases++];
            *c = (family_case){.n_rules = 0};
            assert_int_equal(sscanf(line, "file %63s", c->file), 1);
            rules = c->rules;
            n_rules = &c->n_rules;
        } else if (starts_with(line, "use ")) {
            assert_non_null(rules);
            use_blocks(blocks, n_blocks, line + 4, rules, n_rules);
        } else if (starts_with(line, "config ")) {
            assert_true(n_cases > 0);
            char *config = cases[n_cases - 1].config;
            size_t n = strlen(config);
            assert_true(n + strlen(line) < sizeof cases[0].config);
            memcpy(config + n, line + 7, strlen(line + 7) + 1);
        } else {
            family_rule rule = parse_rule(line);
            assert_non_null(rules);
            add_rule(rules, n_rules, &rule);
        }
    }
    fclose(file);
    return n_cases;
}

/* ---- config.json ----------------------------------------------------------------------------- */

/* Returns the number of a $word. */
static double find_number(const gguf_file *g, const char *arch, const char *word) {
    static const struct {
        const char *word, *suffix;
    } keys[] = {{"n_embd", "embedding_length"},
                {"n_ff", "feed_forward_length"},
                {"n_layer", "block_count"},
                {"n_head", "attention.head_count"},
                {"n_head_kv", "attention.head_count_kv"},
                {"head_dim", "attention.key_length"},
                {"n_latent", "attention.kv_lora_rank"},
                {"n_latent_q", "attention.q_lora_rank"},
                {"q_dim", "attention.key_length_mla"},
                {"v_dim", "attention.value_length_mla"},
                {"n_ctx", "context_length"},
                {"n_vocab", "vocab_size"},
                {"n_expert", "expert_count"},
                {"n_used", "expert_used_count"},
                {"n_rot", "rope.dimension_count"},
                {"n_ssm_head", "ssm.time_step_rank"},
                {"n_group", "ssm.group_count"},
                {"n_state", "ssm.state_size"},
                {"taps", "ssm.conv_kernel"},
                {"kda_dim", "kda.head_dim"},
                {"base", "rope.freq_base"},
                {"eps", "attention.layer_norm_rms_epsilon"},
                {"eps", "attention.layer_norm_epsilon"}};
    static const char *const widths[][2] = {{"n_ff_exp", "ffn_down_exps"},
                                            {"n_ff_shexp", "ffn_down_shexp"}};
    char key[128];
    double value = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && value == 0; i++) {
        if (strcmp(keys[i].word, word) != 0) continue;
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].suffix);
        const gguf_value *v = gguf_find(g, key);
        for (uint64_t k = 0; v && v->type == GGUF_ARRAY && value == 0; k++)
            if (!gguf_item_f64(v, k, &value)) break;
        if (v && v->type != GGUF_ARRAY) gguf_as_f64(v, &value);
    }
    for (size_t i = 0; i < 2 && value == 0; i++) {
        if (strcmp(widths[i][0], word) != 0) continue;
        for (uint64_t k = 0; k < gguf_n_tensors(g); k++) {
            const gguf_tensor *t = gguf_tensor_at(g, k);
            if (strstr(t->name, widths[i][1]) && strstr(t->name, ".weight"))
                value = (double)t->dims[0];
        }
    }
    /* keys that files may leave out */
    if (value == 0 && strcmp(word, "head_dim") == 0)
        return find_number(g, arch, "n_embd") / find_number(g, arch, "n_head");
    if (value == 0 && strcmp(word, "n_head_kv") == 0) return find_number(g, arch, "n_head");
    const gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    if (value == 0 && strcmp(word, "n_vocab") == 0 && embd) return (double)embd->dims[1];
    if (value == 0) fail_msg("no number for $%s", word);
    return value;
}

static void write_config(const family_case *c, const gguf_file *g, const hf_folder *f) {
    char text[8192], arch[64];
    size_t used = 0;
    gguf_string name;
    assert_true(gguf_as_string(gguf_find(g, "general.architecture"), &name));
    snprintf(arch, sizeof arch, "%.*s", (int)name.n_bytes, name.data);
    for (const char *at = c->config; *at;) {
        assert_true(used + 64 < sizeof text);
        if (*at != '$') {
            text[used++] = *at++;
            continue;
        }
        char word[32];
        int n = 0;
        assert_int_equal(sscanf(at, "$%31[a-z_]%n", word, &n), 1);
        used += (size_t)snprintf(text + used, sizeof text - used, "%.9g",
                                 find_number(g, arch, word));
        at += n;
    }
    text[used] = 0;
    folder_write_text(f, "config.json", text);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* A stack of matrices, [stack][rows][in] of elements of `size` bytes. */
typedef struct stack {
    uint8_t *data; /* owned */
    uint64_t n, rows, in;
    size_t size;
    bool vector;
} stack;

static stack read_stack(const gguf_tensor *t) {
    bool vector = t->n_dims == 1 || ends_with(t->name, ".bias") ||
                  ends_with(t->name, "norm.weight");
    stack s = {.size = t->type == QUANT_F32 ? 4 : 2, .vector = vector};
    assert_true(t->type == QUANT_F32 || t->type == QUANT_F16);
    s.n = vector ? t->dims[1] : t->dims[2] * t->dims[3];
    s.rows = vector ? t->dims[0] : t->dims[1];
    s.in = vector ? 1 : t->dims[0];
    s.data = malloc(t->n_bytes);
    assert_non_null(s.data);
    memcpy(s.data, t->data, t->n_bytes);
    return s;
}

/* A stack of `rows` rows; row r is row from(r) of one of the inputs. */
typedef struct row_from {
    int input;
    uint64_t row;
} row_from;

typedef struct shape {
    uint64_t head_dim, n_head, n_head_kv;
    uint64_t n_key, n_value, key_dim; /* for the delta rule; 0: others */
} shape;

static uint64_t unrotated(uint64_t row, uint64_t d) {
    uint64_t head = row / d, half = row % d / (d / 2), pair = row % (d / 2);
    return head * d + 2 * pair + half;
}

/* Row r of value heads, `unit` rows each, stored group by group. */
static uint64_t grouped_row(const shape *z, uint64_t unit, uint64_t r) {
    uint64_t per_group = z->n_value / z->n_key, head = r / unit;
    return (head % per_group * z->n_key + head / per_group) * unit + r % unit;
}

/* Row r of groups of a query head, a key head, and their value and gate heads. */
static row_from delta_group(const stack *in, const shape *z, uint64_t r) {
    uint64_t d = z->key_dim, values = in[1].rows / z->n_key, per = 2 * d + 2 * values;
    uint64_t group = r / per, at = r % per;
    if (at < d) return (row_from){0, group * d + at};
    if (at < 2 * d) return (row_from){0, (z->n_key + group) * d + at - d};
    if (at < 2 * d + values) return (row_from){0, 2 * z->n_key * d + group * values + at - 2 * d};
    return (row_from){1, group * values + at - 2 * d - values};
}

/* Returns the row of the GGUF tensors that is row r of the folder's tensor. */
static row_from pick_row(const char *op, const stack *in, int n_in, const shape *z, uint64_t r) {
    if (starts_with(op, "unrotate")) return (row_from){0, unrotated(r, z->head_dim)};
    if (starts_with(op, "each_second")) return (row_from){0, r + in[0].rows / 2};
    if (starts_with(op, "turns")) return (row_from){(int)(r % 2), r / 2};
    if (starts_with(op, "group_heads"))
        return (row_from){0, grouped_row(z, in[0].rows / z->n_value, r)};
    if (starts_with(op, "group_values")) {
        uint64_t first = 2 * z->n_key * z->key_dim, unit = (in[0].rows - first) / z->n_value;
        return (row_from){0, r < first ? r : first + grouped_row(z, unit, r - first)};
    }
    if (strcmp(op, "delta_groups") == 0) return delta_group(in, z, r);
    if (starts_with(op, "cat") && r >= in[0].rows) return (row_from){1, r - in[0].rows};
    if (strcmp(op, "groups") != 0 && !starts_with(op, "groups_")) return (row_from){0, r};
    uint64_t per = z->n_head / z->n_head_kv, d = z->head_dim, head = r / d, at = r % d;
    uint64_t group = head / (per + 2), within = head % (per + 2);
    bool halves = strcmp(op, "groups_unrotate") == 0;
    int part = within < per ? 0 : within == per ? 1 : 2;
    uint64_t row = part == 0 ? (group * per + within) * d + at : group * d + at;
    if (halves && part < 2) row = unrotated(row, d);
    if (n_in > 1) return (row_from){part, row};
    return (row_from){0, row + (part > 0 ? z->n_head * d : 0) + (part > 1 ? z->n_head_kv * d : 0)};
}

/* Joins transposed keys and the rows of values, head by head, in one matrix of all heads. */
static stack join_heads(const stack *keys, const stack *values) {
    stack out = *values;
    uint64_t n_nope = keys->in, per = n_nope + values->rows;
    out.n = 1;
    out.rows = keys->n * per;
    out.data = malloc((size_t)(out.rows * out.in) * out.size);
    assert_non_null(out.data);
    for (uint64_t h = 0; h < keys->n; h++)
        for (uint64_t r = 0; r < per; r++)
            for (uint64_t c = 0; c < out.in; c++) {
                const uint8_t *from =
                    r < n_nope
                        ? keys->data + ((h * keys->rows + c) * n_nope + r) * out.size
                        : values->data + ((h * values->rows + r - n_nope) * out.in + c) * out.size;
                memcpy(out.data + ((h * per + r) * out.in + c) * out.size, from, out.size);
            }
    return out;
}

static uint64_t count_rows(const char *op, const stack *in, int n_in) {
    uint64_t rows = 0;
    for (int i = 0; i < n_in; i++) rows += in[i].rows;
    if (strcmp(op, "but4") == 0) return rows - 4;
    return starts_with(op, "each_") ? rows / 2 : rows;
}

static stack arrange(const char *op, const stack *in, int n_in, const shape *z) {
    if (strcmp(op, "heads") == 0) return join_heads(&in[0], &in[1]);
    stack out = in[0];
    unsigned item_at, before;
    if (sscanf(op, "item%u", &item_at) == 1) { /* one item of a stack */
        const size_t n_bytes = (size_t)(out.rows * out.in) * out.size;
        out.n = 1;
        out.data = malloc(n_bytes);
        assert_non_null(out.data);
        memcpy(out.data, in[0].data + item_at * n_bytes, n_bytes);
        return out;
    }
    unsigned piece, n_pieces;
    if (sscanf(op, "piece%uof%u", &piece, &n_pieces) == 2) { /* consecutive rows */
        assert_true(out.rows % n_pieces == 0);
        out.rows /= n_pieces;
        const size_t n_bytes = (size_t)(out.rows * out.in) * out.size;
        out.data = malloc(n_bytes);
        assert_non_null(out.data);
        memcpy(out.data, in[0].data + piece * n_bytes, n_bytes);
        return out;
    }
    if (sscanf(op, "after%u", &before) == 1) { /* the rows after others */
        const size_t n_bytes = (size_t)(out.rows * out.in) * out.size,
                     n_before = before * (size_t)out.in * out.size;
        out.rows += before;
        out.data = malloc(n_before + n_bytes);
        assert_non_null(out.data);
        memset(out.data, 0x3c, n_before);
        memcpy(out.data + n_before, in[0].data, n_bytes);
        return out;
    }
    size_t row_bytes = (size_t)out.in * out.size;
    out.rows = count_rows(op, in, n_in);
    out.data = malloc((size_t)(out.n * out.rows) * row_bytes);
    assert_non_null(out.data);
    for (uint64_t item = 0; item < out.n; item++) {
        for (uint64_t r = 0; r < out.rows; r++) {
            row_from from = pick_row(op, in, n_in, z, r);
            const stack *s = &in[from.input];
            assert_true(from.row < s->rows);
            memcpy(out.data + (item * out.rows + r) * row_bytes,
                   s->data + (item * s->rows + from.row) * row_bytes, row_bytes);
        }
    }
    return out;
}

/* Factor of the numbers of a row. */
static double multiplier(const char *op, const stack *s, uint64_t row) {
    /* gate, values, keys, queries, steps: 2 over families.txt's ssm_multipliers */
    static const double parts[] = {2, 1, 0.5, 4, 8};
    uint64_t wide = (s->rows - 4) / 4; /* in a model whose four heads are equal */
    double by = 1;
    if (strcmp(op, "ssm_parts") == 0) return parts[row / wide];
    sscanf(op, "times%lf", &by);
    return by;
}

/* Operations on numbers. */
static void compute(const char *op, int layer, const stack *s) {
    bool log_of = ends_with(op, "log"), less = strcmp(op, "less1") == 0;
    bool times = starts_with(op, "times") || strcmp(op, "ssm_parts") == 0;
    int period = 0;
    sscanf(op, "halved%d", &period); /* GGUF has half after each so many layers */
    for (uint64_t i = 0; i < s->n * s->rows * s->in && period > 0; i++) {
        float x;
        memcpy(&x, s->data + i * 4, 4);
        x = ldexpf(x, layer / period);
        memcpy(s->data + i * 4, &x, 4);
    }
    if (!log_of && !less && !times) return;
    assert_int_equal(s->size, 4);
    for (uint64_t i = 0; i < s->n * s->rows * s->in; i++) {
        float x;
        memcpy(&x, s->data + i * 4, 4);
        if (less) x -= 1;
        if (times) x = (float)(x * multiplier(op, s, i / s->in % s->rows));
        if (log_of) x = logf(-x);
        memcpy(s->data + i * 4, &x, 4);
    }
}

/* Groups the elements of rows, which belong to value heads. */
static void group_columns(const shape *z, stack *s) {
    uint8_t *out = malloc((size_t)(s->rows * s->in) * s->size);
    assert_non_null(out);
    for (uint64_t r = 0; r < s->rows; r++)
        for (uint64_t i = 0; i < s->in; i++)
            memcpy(out + (r * s->in + i) * s->size,
                   s->data + (r * s->in + grouped_row(z, s->in / z->n_value, i)) * s->size,
                   s->size);
    free(s->data);
    s->data = out;
}

/* Changes the shape of the same numbers: [n], or [channels][1][taps]. */
static void reshape(const char *op, const shape *z, stack *s) {
    if (ends_with(op, "log") || strcmp(op, "flat") == 0) {
        s->rows *= s->n * s->in;
        s->n = s->in = 1;
        s->vector = true;
    } else if (strcmp(op, "by_head") == 0) {
        s->rows /= z->head_dim;
        s->in = z->head_dim;
        s->vector = false;
    } else if (ends_with(op, "taps")) {
        s->n *= s->rows;
        s->rows = 1;
    }
}

static void transpose(stack *s) {
    uint8_t *out = malloc((size_t)(s->n * s->rows * s->in) * s->size);
    assert_non_null(out);
    for (uint64_t item = 0; item < s->n; item++)
        for (uint64_t r = 0; r < s->rows; r++)
            for (uint64_t c = 0; c < s->in; c++)
                memcpy(out + (item * s->rows * s->in + c * s->rows + r) * s->size,
                       s->data + (item * s->rows * s->in + r * s->in + c) * s->size, s->size);
    free(s->data);
    s->data = out;
    uint64_t rows = s->rows;
    s->rows = s->in;
    s->in = rows;
}

/* ---- shards ---------------------------------------------------------------------------------- */

enum { N_SHARDS = 2, MAX_HEADER = 1 << 17 };

typedef struct shards {
    char headers[N_SHARDS][MAX_HEADER];
    size_t n_header[N_SHARDS], n_data[N_SHARDS];
    uint8_t data[N_SHARDS][8 << 20];
    char index[MAX_HEADER];
    size_t n_index;
    int next;
} shards;

/* Adds items first .. first + n - 1 of a stack as one tensor. */
static void add_tensor(shards *to, const char *name, const stack *s, uint64_t first, uint64_t n) {
    int k = to->next++ % N_SHARDS;
    size_t n_bytes = (size_t)(n * s->rows * s->in) * s->size;
    char dims[96];
    size_t used = 0;
    if (n > 1) used += (size_t)snprintf(dims, sizeof dims, "%d,", (int)n);
    used += (size_t)snprintf(dims + used, sizeof dims - used, "%d", (int)s->rows);
    if (!s->vector) snprintf(dims + used, sizeof dims - used, ",%d", (int)s->in);
    assert_true(to->n_data[k] + n_bytes <= sizeof to->data[k]);
    assert_true(to->n_header[k] + 256 < MAX_HEADER && to->n_index + 256 < MAX_HEADER);
    to->n_header[k] += (size_t)snprintf(
        to->headers[k] + to->n_header[k], MAX_HEADER - to->n_header[k],
        "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
        to->n_header[k] ? ',' : '{', name,
        s->size == 8   ? "I64"
        : s->size == 4 ? "F32"
                       : "F16",
        dims, to->n_data[k], to->n_data[k] + n_bytes);
    to->n_index += (size_t)snprintf(to->index + to->n_index, MAX_HEADER - to->n_index,
                                    "%s\"%s\":\"model-%05d-of-00002.safetensors\"",
                                    to->n_index ? "," : "{\"weight_map\":{", name, k + 1);
    memcpy(to->data[k] + to->n_data[k], s->data + first * s->rows * s->in * s->size, n_bytes);
    to->n_data[k] += n_bytes;
}

static void write_shards(shards *s, const hf_folder *f) {
    for (int k = 0; k < N_SHARDS; k++) {
        char name[64];
        size_t n_header = s->n_header[k] + 1, n = 8 + n_header + s->n_data[k];
        uint8_t *bytes = malloc(n);
        assert_non_null(bytes);
        for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(n_header >> (8 * i));
        memcpy(bytes + 8, s->headers[k], n_header - 1);
        bytes[8 + n_header - 1] = '}';
        memcpy(bytes + 8 + n_header, s->data[k], s->n_data[k]);
        snprintf(name, sizeof name, "model-%05d-of-00002.safetensors", k + 1);
        folder_write(f, name, bytes, n);
        free(bytes);
    }
    snprintf(s->index + s->n_index, MAX_HEADER - s->n_index, "}}");
    folder_write_text(f, "model.safetensors.index.json", s->index);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Expands "a.{l}.b.{e}" with the numbers. */
static void fill_name(char *out, size_t n_out, const char *pattern, int layer, int item) {
    size_t used = 0;
    for (const char *at = pattern; *at && used + 16 < n_out;) {
        bool number = at[0] == '{' && at[2] == '}';
        if (number)
            used += (size_t)snprintf(out + used, n_out - used, "%d", at[1] == 'l' ? layer : item);
        else
            out[used++] = *at;
        at += number ? 3 : 1;
    }
    out[used] = 0;
}

static void apply_rule(const family_rule *rule, const gguf_file *g, int layer, const shape *z,
                       bool *named, shards *to) {
    stack in[FAMILY_MAX_INPUTS] = {{0}};
    char name[160];
    if (strcmp(rule->op, "integers") == 0) { /* a key's list, I64 */
        const gguf_value *v = gguf_find(g, rule->inputs[0]);
        int64_t numbers[64];
        assert_true(v && v->count <= 64);
        for (uint64_t i = 0; i < v->count; i++) assert_true(gguf_item_i64(v, i, &numbers[i]));
        const stack list = {.data = (uint8_t *)numbers,
                            .n = 1,
                            .rows = v->count,
                            .in = 1,
                            .size = 8,
                            .vector = true};
        add_tensor(to, rule->name, &list, 0, 1);
        return;
    }
    if (strcmp(rule->op, "number") == 0) { /* a layer's number of a key */
        double x;
        float number;
        assert_true(gguf_item_f64(gguf_find(g, rule->inputs[0]), (uint64_t)layer, &x));
        number = (float)x;
        const stack one = {
            .data = (uint8_t *)&number, .n = 1, .rows = 1, .in = 1, .size = 4, .vector = true};
        fill_name(name, sizeof name, rule->name, layer, 0);
        add_tensor(to, name, &one, 0, 1);
        return;
    }
    for (int i = 0; i < rule->n_inputs; i++) {
        fill_name(name, sizeof name, rule->inputs[i], layer, 0);
        const gguf_tensor *t = gguf_find_tensor(g, name);
        if (!t && i == 0) return;
        if (!t) fail_msg("no %s", name);
        named[t - gguf_tensor_at(g, 0)] = true;
        in[i] = read_stack(t);
    }
    stack out = arrange(rule->op, in, rule->n_inputs, z);
    if (strcmp(rule->op, "group_columns") == 0) group_columns(z, &out);
    compute(rule->op, layer, &out);
    if (ends_with(rule->op, "_T")) transpose(&out);
    reshape(rule->op, z, &out);
    uint64_t pieces = starts_with(rule->op, "each") ? out.n : 1;
    for (uint64_t i = 0; i < pieces; i++) {
        fill_name(name, sizeof name, rule->name, layer, (int)i);
        add_tensor(to, name, &out, i, out.n / pieces);
    }
    free(out.data);
    for (int i = 0; i < rule->n_inputs; i++) free(in[i].data);
}

void family_write(const family_case *c, const gguf_file *g, bool (*ignored)(const char *name),
                  const hf_folder *f) {
    shards *to = calloc(1, sizeof *to);
    bool *named = calloc((size_t)gguf_n_tensors(g), sizeof *named);
    assert_non_null(to);
    assert_non_null(named);
    gguf_string arch_name;
    char arch[64];
    assert_true(gguf_as_string(gguf_find(g, "general.architecture"), &arch_name));
    snprintf(arch, sizeof arch, "%.*s", (int)arch_name.n_bytes, arch_name.data);
    shape z = {.head_dim = (uint64_t)find_number(g, arch, "head_dim"),
               .n_head = (uint64_t)find_number(g, arch, "n_head"),
               .n_head_kv = (uint64_t)find_number(g, arch, "n_head_kv")};
    int n_layer = (int)find_number(g, arch, "n_layer");
    if (strstr(c->config, "linear_num_key_heads")) {
        z.n_key = (uint64_t)find_number(g, arch, "n_group");
        z.n_value = (uint64_t)find_number(g, arch, "n_ssm_head");
        z.key_dim = (uint64_t)find_number(g, arch, "n_state");
    }
    for (int i = 0; i < c->n_rules; i++) {
        bool per_layer = strstr(c->rules[i].name, "{l}") != NULL;
        for (int layer = 0; layer < (per_layer ? n_layer : 1); layer++)
            apply_rule(&c->rules[i], g, layer, &z, named, to);
    }
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++)
        if (!named[i] && !ignored(gguf_tensor_at(g, i)->name))
            fail_msg("%s: no rule for %s", c->file, gguf_tensor_at(g, i)->name);
    write_config(c, g, f);
    write_shards(to, f);
    free(named);
    free(to);
}
