/* test_convert_lora.c: a PEFT folder becomes an adapter with which the converted model gives the
 * logits of the model merged before conversion; and folders that cannot be converted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "hf_folder.h"
#include "powerinfer_metadata.h"
#include "run_model.h"

enum { RANK = 4, N_TOKENS = 24, N_VOCAB = 40, N_MATRICES = 6 };

/* alpha 6, rank 4 */
static const double factor = 1.5;
static const char config[] =
    "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":6,\"bias\":\"none\",\"use_dora\":false,"
    "\"alpha_pattern\":{},\"rank_pattern\":{},\"base_model_name_or_path\":\"someone/else\"}";

typedef struct matrix {
    const char *name;
    uint64_t rows, cols;
    bool embedding; /* rows are looked up: A is [RANK, rows], B [cols, RANK] */
} matrix;

static const matrix matrices[N_MATRICES] = {{"model.layers.0.self_attn.q_proj", 64, 64, false},
                                            {"model.layers.0.self_attn.k_proj", 32, 64, false},
                                            {"model.layers.1.self_attn.v_proj", 32, 64, false},
                                            {"model.layers.1.mlp.down_proj", 64, 96, false},
                                            {"lm_head", 40, 64, false},
                                            {"model.embed_tokens", 40, 64, true}};

static shard weights;
static float plain[N_TOKENS * N_VOCAB], want[N_TOKENS * N_VOCAB], got[N_TOKENS * N_VOCAB];

static void name_half(const matrix *x, char half, char out[128]) {
    snprintf(out, 128,
             x->embedding ? "base_model.model.%s.lora_embedding_%c"
                          : "base_model.model.%s.lora_%c.weight",
             x->name, half);
}

static void add_pair(const matrix *x) {
    char name[128];
    name_half(x, 'A', name);
    shard_add(&weights, name, "F32", RANK, x->embedding ? x->rows : x->cols);
    name_half(x, 'B', name);
    shard_add(&weights, name, "F32", x->embedding ? x->cols : x->rows, RANK);
}

static void open_adapter(hf_folder *f, const char *said) {
    folder_open(f);
    folder_write_text(f, "adapter_config.json", said);
    shard_begin(&weights);
    for (int i = 0; i < N_MATRICES; i++) add_pair(&matrices[i]);
    shard_write(&weights, f, "adapter_model.safetensors");
}

/* Adds factor * B A to the matrix at the end of the shard. */
static void merge(const matrix *x) {
    char a[128], b[128];
    name_half(x, 'A', a);
    name_half(x, 'B', b);
    uint8_t *at = weights.data + weights.n_data - x->rows * x->cols * sizeof(float);
    for (uint64_t i = 0; i < x->rows * x->cols; i++) {
        float w;
        double sum = 0;
        const uint64_t row = i / x->cols, col = i % x->cols;
        for (uint64_t k = 0; k < RANK; k++)
            sum += (double)tensor_value(b, (x->embedding ? col : row) * RANK + k) *
                   (double)tensor_value(a, x->embedding ? k * x->rows + row : k * x->cols + col);
        memcpy(&w, at + i * sizeof w, sizeof w);
        w = (float)(w + factor * sum);
        memcpy(at + i * sizeof w, &w, sizeof w);
    }
}

static model_shape shape_base(void) {
    model_shape shape = shape_tiny("llama");
    shape.dtype = "F32";
    shape.extra = "\"tie_word_embeddings\":false,";
    return shape;
}

/* Like folder_write_model, with the matrices merged; the header gives their places. */
static void write_merged(const hf_folder *f) {
    model_shape shape = shape_base();
    folder_write_config(f, &shape);
    shard_begin(&weights);
    shard_add_layers(&weights, &shape, 0, shape.n_layer);
    size_t end = weights.n_data;
    for (int i = 0; i < N_MATRICES; i++) {
        char name[128];
        size_t first, last;
        snprintf(name, sizeof name, "\"%s.weight\"", matrices[i].name);
        const char *entry = strstr(weights.header, name);
        assert_non_null(entry);
        entry = strstr(entry, "data_offsets");
        assert_non_null(entry);
        entry = strchr(entry, '[');
        assert_non_null(entry);
        assert_int_equal(sscanf(entry, "[%zu,%zu]", &first, &last), 2);
        weights.n_data = last;
        merge(&matrices[i]);
    }
    weights.n_data = end;
    shard_write(&weights, f, "model.safetensors");
}

static void convert(hf_folder *f, const char *base, const char *out) {
    pi_error err = {0};
    pi_convert_options options = pi_convert_default_options();
    options.type = "f32";
    options.base = base;
    if (pi_convert(f->dir, out, &options, &err) != PI_OK) fail_msg("%s", err.message);
}

static void refuse(hf_folder *f, const char *base, pi_status expected, const char *words) {
    pi_error err = {0};
    pi_convert_options options = pi_convert_default_options();
    options.base = base;
    assert_int_equal(pi_convert(f->dir, f->out, &options, &err), expected);
    if (!strstr(err.message, words)) fail_msg("'%s' is not in: %s", words, err.message);
    assert_null(strchr(err.message, '\n'));
    assert_false(folder_has_output(f));
}

static void feed(const char *path, const char *adapter, float *logits) {
    pi_error err = {0};
    pi_adapter lora = {adapter, 1};
    pi_model_options model_options = pi_model_default_options();
    pi_context_options options = run_exact_options();
    run_model r = {.n_vocab = N_VOCAB};
    model_options.adapters = &lora;
    model_options.n_adapters = adapter ? 1 : 0;
    if (pi_model_open(path, &model_options, &r.model, &err) != PI_OK) fail_msg("%s", err.message);
    if (pi_context_create(r.model, &options, &r.context, &err) != PI_OK)
        fail_msg("%s", err.message);
    int32_t tokens[N_TOKENS];
    run_random_tokens(7, r.n_vocab, tokens, N_TOKENS);
    run_tokens(&r, tokens, N_TOKENS, 0, logits);
    run_close(&r);
}

static void test_like_merged(void **state) {
    (void)state;
    hf_folder base, merged, adapter;
    model_shape shape = shape_base();
    folder_open(&base);
    folder_write_model(&base, &shape);
    folder_open(&merged);
    write_merged(&merged);
    open_adapter(&adapter, config);
    convert(&base, NULL, base.out);
    convert(&merged, NULL, merged.out);
    convert(&adapter, base.dir, adapter.out);
    feed(base.out, NULL, plain);
    feed(merged.out, NULL, want);
    feed(base.out, adapter.out, got);
    assert_true(run_nmse(plain, want, N_TOKENS * N_VOCAB) > 1e-3);
    double nmse = run_nmse(got, want, N_TOKENS * N_VOCAB);
    if (!(nmse <= 1e-10)) fail_msg("logits differ: NMSE %g", nmse);
    folder_close(&adapter);

    /* alpha / sqrt(rank); the adapter's folder is the model's folder */
    open_adapter(&adapter, "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"use_rslora\":true}");
    folder_write_config(&adapter, &shape);
    convert(&adapter, NULL, adapter.out);
    feed(base.out, adapter.out, got);
    assert_true(run_nmse(got, want, N_TOKENS * N_VOCAB) <= 1e-10);
    folder_close(&adapter);

    /* the same factor from patterns: suffixes and whole names; the first match is used */
    static const char *const patterns[] = {
        "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"alpha_pattern\":{\"self_attn.q_proj\":"
        "6,"
        "\"^model.layers.0.self_attn.k_proj\":6,\"^self_attn.v_proj\":1,\"_proj\":2,\"v_proj\":6,"
        "\"down_proj\":6,\"mlp.down_proj\":7,\"lm_head\":6,\"embed_tokens\":6}}",
        "{\"peft_type\":\"LORA\",\"r\":16,\"lora_alpha\":3,\"use_rslora\":true,\"rank_pattern\":{"
        "\"q_proj\":4,\"k_proj\":4,\"v_proj\":4,\"down_proj\":4,\"lm_head\":4,\"embed_tokens\":4}"
        "}"};
    for (int i = 0; i < 2; i++) {
        open_adapter(&adapter, patterns[i]);
        convert(&adapter, base.dir, adapter.out);
        feed(base.out, adapter.out, got);
        assert_true(run_nmse(got, want, N_TOKENS * N_VOCAB) <= 1e-10);
        folder_close(&adapter);
    }
    folder_close(&merged);
    folder_close(&base);
}

#define LORA "{\"peft_type\":\"LORA\",\"lora_alpha\":1,"

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *config;
        pi_status status;
        const char *words;
    } bad[] = {
        {"{\"peft_type\":\"IA3\"}", PI_ERR_UNSUPPORTED, "peft_type is IA3"},
        {"{\"r\":4}", PI_ERR_UNSUPPORTED, "peft_type is missing"},
        {"[]", PI_ERR_UNSUPPORTED, "not a LoRA adapter"},
        {"{", PI_ERR_FORMAT, "adapter_config.json"},
        {"{\"peft_type\":\"LORA\"}", PI_ERR_FORMAT, "lora_alpha"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":1e300}", PI_ERR_FORMAT, "lora_alpha"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":1,\"use_dora\":true}", PI_ERR_UNSUPPORTED,
         "use_dora"},
        {LORA "\"alpha_pattern\":{\".*q\":2}}", PI_ERR_UNSUPPORTED, "expression '.*q'"},
        {LORA "\"alpha_pattern\":{\"q\":\"2\"}}", PI_ERR_FORMAT, "alpha_pattern"},
        {LORA "\"rank_pattern\":{\"q\":0}}", PI_ERR_FORMAT, "rank_pattern"},
        {LORA "\"r\":8}", PI_ERR_FORMAT, "has rank 4, adapter_config.json says 8"},
        {LORA "\"r\":4,\"rank_pattern\":{\"k_proj\":2}}", PI_ERR_FORMAT,
         "layers.0.self_attn.k_proj.lora_B.weight has rank 4, adapter_config.json says 2"},
        {LORA "\"r\":0}", PI_ERR_FORMAT, "r is not a usable"},
        {LORA "\"modules_to_save\":[\"lm_head\"]}", PI_ERR_UNSUPPORTED, "modules_to_save"},
        {LORA "\"init_lora_weights\":\"pissa_niter_4\"}", PI_ERR_UNSUPPORTED, "pissa_niter_4"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":1,\"r\":0,\"use_rslora\":true}", PI_ERR_FORMAT,
         "r is not a usable"},
    };
    hf_folder f, base;
    model_shape shape = shape_base();
    folder_open(&base);
    folder_write_model(&base, &shape);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        open_adapter(&f, bad[i].config);
        refuse(&f, base.dir, bad[i].status, bad[i].words);
        folder_close(&f);
    }
    open_adapter(&f, config);
    refuse(&f, NULL, PI_ERR_NOT_FOUND, "set base to its folder");
    refuse(&f, f.dir, PI_ERR_NOT_FOUND, "no config.json");
    refuse(&base, base.dir, PI_ERR_ARG, "not an adapter");
    folder_close(&f);

    /* tensors: unknown ones, another shape, half a pair, none */
    static const matrix odd[] = {{"model.layers.0.self_attn.x_proj", 64, 64, false},
                                 {"model.layers.0.self_attn.q_proj", 64, 63, false},
                                 {"model.layers.0.self_attn.q_proj", 62, 64, false},
                                 {"model.layers.2.self_attn.q_proj", 64, 64, false}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        folder_open(&f);
        folder_write_text(&f, "adapter_config.json", config);
        shard_begin(&weights);
        add_pair(&odd[i]);
        shard_write(&weights, &f, "adapter_model.safetensors");
        pi_error err = {0};
        pi_convert_options options = pi_convert_default_options();
        options.base = base.dir;
        assert_int_not_equal(pi_convert(f.dir, f.out, &options, &err), PI_OK);
        if (!strstr(err.message, odd[i].name)) fail_msg("%s", err.message);
        assert_false(folder_has_output(&f));
        folder_close(&f);
    }
    open_adapter(&f, config); /* and a tensor that is not part of a pair */
    shard_add(&weights, "base_model.model.model.layers.0.self_attn.q_proj.bias", "F32", 0, 64);
    shard_write(&weights, &f, "adapter_model.safetensors");
    refuse(&f, base.dir, PI_ERR_UNSUPPORTED, "q_proj.bias is not part of a pair");
    folder_close(&f);
    for (int half = 0; half < 2; half++) {
        folder_open(&f);
        folder_write_text(&f, "adapter_config.json", config);
        shard_begin(&weights);
        shard_add(&weights,
                  half ? "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
                       : "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                  "F32", 64, half ? RANK : 64);
        shard_write(&weights, &f, "adapter_model.safetensors");
        refuse(&f, base.dir, half ? PI_ERR_FORMAT : PI_ERR_UNSUPPORTED, "q_proj.lora_A");
        folder_close(&f);
    }
    folder_close(&base);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_merged),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
