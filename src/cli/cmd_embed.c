/* cmd_embed.c: embeddings of texts, one per line of the input, or the scores of a model that ranks.
 * Only numbers go to standard output. */
#include <math.h>
#include <string.h>

#include "cli.h"
#include "cli_text.h"
#include "clock.h"
#include "file.h"
#include "json_writer.h"
#include "mem.h"
#include "os_text.h"
#include "powerinfer_embed.h"

/* In the order of the choices of --format. */
typedef enum embed_format { FORMAT_RAW, FORMAT_ARRAY, FORMAT_JSON, FORMAT_JSON_PLUS } embed_format;

typedef struct job {
    const cli_options *options;
    char *text; /* all texts, [n_text] */
    size_t n_text;
    pi_model *model;
    pi_model_info info;
    pi_context *context;
    pi_pooling pooling;
    int32_t width;
    pi_embed_text *texts; /* [n_texts]; each owns its tokens */
    int32_t n_texts;
    int64_t n_tokens; /* of all texts */
    float *vectors;   /* [n_texts][width], or [n_tokens][width] without pooling */
} job;

/* ---- texts ----------------------------------------------------------------------------------- */

static pi_status read_text(job *j, pi_error *err) {
    const cli_options *o = j->options;
    bool from_text = options_typed(o, &o->prompt) || (o->prompt && !options_typed(o, &o->file));
    if (o->from_stdin || !from_text) {
        const char *path = o->file && !o->from_stdin ? o->file : "-";
        pi_status status = file_read_stream(path, CLI_TEXT_MAX, &j->text, &j->n_text, err);
        if (status == PI_OK && j->n_text && j->text[j->n_text - 1] == '\n') j->n_text--;
        return status;
    }
    j->n_text = strlen(o->prompt);
    j->text = mem_strndup(o->prompt, j->n_text);
    if (!j->text) return error_nomem(err, j->n_text, "texts");
    if (!o->no_escape) j->n_text = text_unescape(j->text, j->n_text);
    return PI_OK;
}

/* The first place of a separator in a text; NULL: there is none. */
static const char *find(const char *text, size_t n, const char *separator) {
    const size_t n_separator = separator ? strlen(separator) : 0;
    return n_separator ? os_find(text, n, separator, n_separator) : NULL;
}

/* With --cls-separator, a text with two parts is a query and a document. */
static pi_status tokenize(const job *j, const char *text, size_t n, pi_embed_text *out,
                          pi_error *err) {
    const char *separator = j->options->cls_separator;
    size_t n_separator = separator ? strlen(separator) : 0, n_tokens = 0, capacity;
    const char *second = find(text, n, separator);
    int32_t *tokens = NULL;
    pi_status status;
    if (!second || j->pooling != PI_POOLING_RANK) {
        status = text_tokenize(j->model, text, n, PI_TOKENIZE_BOS | PI_TOKENIZE_SPECIAL, &tokens,
                               &n_tokens, err);
    } else {
        const char *document = second + n_separator;
        size_t n_query = (size_t)(second - text), n_document = n - n_query - n_separator;
        (void)pi_tokenize_pair(j->model, text, n_query, document, n_document, NULL, 0, &capacity,
                               NULL);
        tokens = mem_alloc(capacity * sizeof *tokens);
        if (!tokens) return error_nomem(err, capacity * sizeof *tokens, "texts");
        status = pi_tokenize_pair(j->model, text, n_query, document, n_document, tokens, capacity,
                                  &n_tokens, err);
    }
    *out = (pi_embed_text){tokens, (int32_t)n_tokens};
    if (status == PI_OK && n_tokens == 0)
        status = error_set(err, PI_ERR_ARG, "text %d is empty: the model has no tokens for it",
                           (int)(out - j->texts) + 1);
    return status;
}

static pi_status split_texts(job *j, pi_error *err) {
    const char *separator = j->options->embd_separator ? j->options->embd_separator : "\n";
    const size_t n_separator = strlen(separator);
    size_t capacity = 0;
    bool more = true;
    for (size_t at = 0, end; more; at = end + n_separator) {
        const char *next = find(j->text + at, j->n_text - at, separator);
        end = next ? (size_t)(next - j->text) : j->n_text;
        more = next != NULL;
        if (!mem_grow((void **)&j->texts, &capacity, (size_t)j->n_texts + 1, sizeof *j->texts,
                      INT32_MAX))
            return error_nomem(err, capacity * sizeof *j->texts, "texts");
        pi_embed_text *text = &j->texts[j->n_texts++];
        *text = (pi_embed_text){NULL, 0};
        pi_status status = tokenize(j, j->text + at, end - at, text, err);
        if (status != PI_OK) return status;
        j->n_tokens += text->n_tokens;
    }
    return PI_OK;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static pi_status choose_pooling(job *j, pi_error *err) {
    bool named;
    j->pooling = pi_model_pooling(j->model, &named);
    if (!named) j->pooling = PI_POOLING_MEAN;
    if (j->options->embed_pooling > 0) j->pooling = (pi_pooling)(j->options->embed_pooling - 1);
    j->width = pi_embedding_width(j->model, j->pooling);
    if (j->width > 0) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "no classifier: %s cannot rank: use another --pooling", j->info.architecture);
}

/* A batch holds at least the longest text of an encoder. */
static pi_status create_context(job *j, pi_error *err) {
    int32_t longest = 1;
    for (int32_t i = 0; i < j->n_texts; i++)
        if (j->texts[i].n_tokens > longest) longest = j->texts[i].n_tokens;
    pi_context_options options = cli_context_options(j->options, longest);
    options.max_batch = 0;
    if (pi_model_is_encoder(j->model) && options.n_batch < longest)
        options.n_batch = longest < PI_MAX_BATCH ? longest : PI_MAX_BATCH;
    if (j->n_tokens < options.n_batch) options.n_batch = (int32_t)j->n_tokens;
    return pi_context_create(j->model, &options, &j->context, err);
}

static pi_status set_up(job *j, pi_error *err) {
    pi_status status = read_text(j, err);
    if (status == PI_OK) status = cli_model_open(j->options, false, &j->model, err);
    if (status != PI_OK) return status;
    pi_model_get_info(j->model, &j->info);
    status = choose_pooling(j, err);
    if (status == PI_OK) status = split_texts(j, err);
    return status == PI_OK ? create_context(j, err) : status;
}

static int64_t count_rows(const job *j) {
    return j->pooling == PI_POOLING_NONE ? j->n_tokens : j->n_texts;
}

static pi_status compute(job *j, pi_error *err) {
    size_t n = (size_t)count_rows(j) * (size_t)j->width;
    j->vectors = mem_calloc(n, sizeof *j->vectors);
    if (!j->vectors) return error_nomem(err, n * sizeof *j->vectors, "embeddings");
    double start = clock_seconds();
    pi_status status = pi_embed(j->context, j->texts, j->n_texts, j->pooling, j->vectors, err);
    if (status != PI_OK) return status;
    double seconds = clock_seconds() - start;
    for (int64_t i = 0; i < count_rows(j) && j->pooling != PI_POOLING_RANK; i++)
        pi_normalize(j->vectors + (size_t)i * (size_t)j->width, j->width,
                     (int32_t)j->options->embd_normalize);
    cli_say(j->options, "%d text%s, %lld tokens, %.1f tokens/s, pooling %s, %s kernels",
            (int)j->n_texts, j->n_texts == 1 ? "" : "s", (long long)j->n_tokens,
            seconds > 0 ? (double)j->n_tokens / seconds : 0, pi_pooling_name(j->pooling),
            pi_context_kernels(j->context));
    return PI_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void put_row(const job *j, json_writer *w, const char *key, const float *row) {
    json_put_array(w, key);
    for (int32_t i = 0; i < j->width; i++) json_put_float(w, NULL, row[i]);
    json_end_array(w);
}

/* A text's vector; without pooling an array of its tokens' vectors. Returns what follows. */
static const float *put_text(const job *j, json_writer *w, const char *key, int32_t text,
                             const float *row) {
    int32_t n = j->pooling == PI_POOLING_NONE ? j->texts[text].n_tokens : 1;
    if (j->pooling == PI_POOLING_NONE) json_put_array(w, key);
    for (int32_t i = 0; i < n; i++, row += j->width)
        put_row(j, w, j->pooling == PI_POOLING_NONE ? NULL : key, row);
    if (j->pooling == PI_POOLING_NONE) json_end_array(w);
    return row;
}

static void put_all(const job *j, json_writer *w, const char *key) {
    const float *row = j->vectors;
    json_put_array(w, key);
    for (int32_t i = 0; i < j->n_texts; i++) row = put_text(j, w, NULL, i, row);
    json_end_array(w);
}

static double cosine(const float *a, const float *b, int32_t n) {
    double product = 0, aa = 0, bb = 0;
    for (int32_t i = 0; i < n; i++) {
        product += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? product / sqrt(aa * bb) : aa == bb ? 1 : 0;
}

/* llama-embedding's form, which is OpenAI's; json+ has the similarities of all pairs of texts. */
static void put_list(const job *j, json_writer *w, bool similarities) {
    const float *row = j->vectors;
    json_put_object(w, NULL);
    json_put_text(w, "object", "list");
    json_put_array(w, "data");
    for (int32_t i = 0; i < j->n_texts; i++) {
        json_put_object(w, NULL);
        json_put_text(w, "object", "embedding");
        json_put_int(w, "index", i);
        row = put_text(j, w, "embedding", i, row);
        json_end_object(w);
    }
    json_end_array(w);
    if (similarities && j->pooling != PI_POOLING_NONE) {
        json_put_array(w, "cosineSimilarity");
        for (int32_t i = 0; i < j->n_texts; i++) {
            json_put_array(w, NULL);
            for (int32_t k = 0; k < j->n_texts; k++)
                json_put_number(w, NULL,
                                cosine(j->vectors + (size_t)i * (size_t)j->width,
                                       j->vectors + (size_t)k * (size_t)j->width, j->width));
            json_end_array(w);
        }
        json_end_array(w);
    }
    json_end_object(w);
}

static void print(const job *j) {
    const cli_options *o = j->options;
    json_writer w;
    if (!o->json && o->embd_format == FORMAT_RAW) {
        for (int64_t i = 0; i < count_rows(j); i++)
            for (int32_t k = 0; k < j->width; k++)
                printf("%.9g%c", (double)j->vectors[(size_t)i * (size_t)j->width + (size_t)k],
                       k + 1 < j->width ? ' ' : '\n');
        return;
    }
    if (o->json || o->embd_format != FORMAT_ARRAY)
        json_begin(&w, stdout);
    else
        json_begin_compact(&w, stdout);
    if (o->json) {
        json_put_object(&w, NULL);
        put_all(j, &w, "embeddings");
        json_put_text(&w, "pooling", pi_pooling_name(j->pooling));
        json_put_int(&w, "dimensions", j->width);
        json_end_object(&w);
    } else if (o->embd_format == FORMAT_ARRAY) {
        put_all(j, &w, NULL);
        putchar('\n');
    } else {
        put_list(j, &w, o->embd_format == FORMAT_JSON_PLUS);
    }
}

int cmd_embed(const cli_options *o) {
    if (options_typed(o, &o->prompt) && (options_typed(o, &o->file) || o->from_stdin))
        return cli_wrong("two inputs: -p and %s: give one of them", o->from_stdin ? "-" : "-f");
    pi_error err = {.status = PI_OK};
    job j = {.options = o};
    int result = EXIT_DONE;
    pi_status status = set_up(&j, &err);
    if (status == PI_OK) status = compute(&j, &err);
    if (status == PI_OK)
        print(&j);
    else
        result = cli_failed(&err);
    for (int32_t i = 0; i < j.n_texts; i++) mem_free((void *)(uintptr_t)j.texts[i].tokens);
    mem_free(j.texts);
    mem_free(j.vectors);
    mem_free(j.text);
    pi_context_destroy(j.context);
    pi_model_close(j.model);
    return result;
}
