/* serve_models.c: see serve_models.h. */
#include "serve_models.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "affix.h"
#include "file.h"
#include "mem.h"
#include "model_source.h"
#include "os_file.h"
#include "overrides.h"

enum { MAX_LIST = 1 << 20, MAX_MODEL_WORDS = 512, MAX_ALIASES = 16 };

/* Words of a command line, each allocated. */
typedef struct word_array {
    char *words[MAX_MODEL_WORDS];
    int n;
} word_array;

typedef struct listed_model {
    char *name, *aliases[MAX_ALIASES];
    int n_aliases;
    char *file;     /* found in a folder; NULL: the options name it */
    word_array own; /* of its section */
    bool at_start;
    uint64_t bytes;
    char **argv; /* [n_argv] what its options were parsed from */
    cli_options *options;
    serve_model model;
} listed_model;

/* Options that concern the whole server or the process. */
static const size_t of_server[] = {
    offsetof(cli_options, host),           offsetof(cli_options, port),
    offsetof(cli_options, api_keys),       offsetof(cli_options, api_key_file),
    offsetof(cli_options, isolate_keys),   offsetof(cli_options, ssl_key_file),
    offsetof(cli_options, ssl_cert_file),  offsetof(cli_options, cors_origins),
    offsetof(cli_options, metrics_prefix), offsetof(cli_options, no_webui),
    offsetof(cli_options, static_path),    offsetof(cli_options, api_prefix),
    offsetof(cli_options, no_slots),       offsetof(cli_options, slot_save_path),
    offsetof(cli_options, timeout),        offsetof(cli_options, ping),
    offsetof(cli_options, connections),    offsetof(cli_options, models),
    offsetof(cli_options, models_max),     offsetof(cli_options, models_memory),
    offsetof(cli_options, drain),          offsetof(cli_options, props),
    offsetof(cli_options, opens_page),     offsetof(cli_options, log_json),
    offsetof(cli_options, cpu_mask),       offsetof(cli_options, cpu_range),
    offsetof(cli_options, prio),           offsetof(cli_options, numa),
    offsetof(cli_options, verbose),        offsetof(cli_options, quiet)};

static bool is_of_server(const option *o) {
    for (size_t i = 0; i < sizeof of_server / sizeof *of_server; i++)
        if (o->offset == of_server[i]) return true;
    return false;
}

static bool add_word(word_array *a, const char *format, const char *x, const char *y) {
    const size_t n = strlen(x) + strlen(y) + 8;
    char *word = a->n < MAX_MODEL_WORDS ? mem_calloc(n, 1) : NULL;
    if (!word) return false;
    snprintf(word, n, format, x, y);
    a->words[a->n++] = word;
    return true;
}

static void free_words(word_array *a) {
    for (int i = 0; i < a->n; i++) mem_free(a->words[i]);
    a->n = 0;
}

/* ---- models ---------------------------------------------------------------------------------- */

static listed_model *find(serve_models *s, const char *name) {
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->listed[i].name, name) == 0) return &s->listed[i];
    return NULL;
}

/* file: NULL if the options name it. Takes the first of two files of one name. */
static pi_status add_model(serve_models *s, const char *name, const char *file, listed_model **out,
                           pi_error *err) {
    listed_model *m = find(s, name);
    *out = m;
    if (m) return PI_OK;
    if (!mem_grow((void **)&s->listed, &s->capacity, (size_t)s->n + 1, sizeof *s->listed,
                  SERVE_MAX_MODELS))
        return error_set(err, PI_ERR_LIMIT, "more than %d models, or no memory for them",
                         SERVE_MAX_MODELS);
    m = &s->listed[s->n];
    *m = (listed_model){.name = mem_strdup(name), .file = file ? mem_strdup(file) : NULL};
    s->n++;
    *out = m;
    return m->name && (m->file || !file) ? PI_OK : error_nomem(err, strlen(name), "model");
}

/* "x-00001-of-00003.gguf": whether the name is that of part `part` (0: any); *n_stem: length of
 * "x". */
static bool is_part(const char *name, int part, size_t *n_stem) {
    static const char pattern[] = "-#####-of-#####.gguf"; /* # is a digit */
    const size_t n = strlen(name), n_pattern = strlen(pattern);
    if (n <= n_pattern) return false;
    const char *at = name + n - n_pattern;
    for (size_t i = 0; i < n_pattern; i++)
        if (pattern[i] == '#' ? !isdigit((unsigned char)at[i]) : at[i] != pattern[i]) return false;
    *n_stem = n - n_pattern;
    return part == 0 || strtol(at + 1, NULL, 10) == part;
}

/* The file of a folder that is its model: the first one by name that is no later part and no
 * projector. False: none. */
static bool find_in_folder(const char *path, char *file, size_t n_file) {
    char best[OS_NAME_MAX + 1] = "";
    const char *name;
    size_t n_stem = 0;
    os_folder *f = os_folder_open(path);
    while (f && (name = os_folder_next(f))) {
        if (!ends_with(name, ".gguf") || starts_with(name, "mmproj")) continue;
        if (is_part(name, 0, &n_stem) && !is_part(name, 1, &n_stem)) continue;
        if (!best[0] || strcmp(name, best) < 0) snprintf(best, sizeof best, "%s", name);
    }
    os_folder_close(f);
    return best[0] && file_join(file, n_file, path, best);
}

static pi_status read_folder(serve_models *s, const char *path, pi_error *err) {
    os_folder *f = os_folder_open(path);
    const char *found;
    pi_status status = PI_OK;
    if (!f) return error_set(err, PI_ERR_IO, "the folder cannot be read: %.200s", path);
    while (status == PI_OK && (found = os_folder_next(f))) {
        char name[OS_NAME_MAX + 1], file[OS_PATH_MAX], inner[OS_PATH_MAX];
        os_info info;
        size_t n_stem = 0;
        listed_model *m;
        snprintf(name, sizeof name, "%s", found);
        if (name[0] == '.' || !file_join(file, sizeof file, path, name) ||
            os_path_info(file, &info) != 0)
            continue;
        if (info.kind == OS_FOLDER) {
            if (find_in_folder(file, inner, sizeof inner))
                status = add_model(s, name, inner, &m, err);
            continue;
        }
        if (!ends_with(name, ".gguf") || starts_with(name, "mmproj")) continue;
        const bool split = is_part(name, 0, &n_stem);
        if (split && !is_part(name, 1, &n_stem)) continue;
        name[split ? n_stem : strlen(name) - strlen(".gguf")] = 0;
        if (name[0]) status = add_model(s, name, file, &m, err);
    }
    os_folder_close(f);
    return status;
}

/* Sizes of the file and of the other parts of a split model. */
static uint64_t file_bytes(const char *path) {
    os_info info;
    size_t n_stem = 0, n_other = 0;
    uint64_t sum = 0;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *other;
    char folder[OS_PATH_MAX], file[OS_PATH_MAX];
    if (!is_part(name, 0, &n_stem)) return os_path_info(path, &info) == 0 ? info.size : 0;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    os_folder *f = os_folder_open(folder);
    while (f && (other = os_folder_next(f))) {
        if (!is_part(other, 0, &n_other) || n_other != n_stem || memcmp(other, name, n_stem) != 0)
            continue;
        if (file_join(file, sizeof file, folder, other) && os_path_info(file, &info) == 0)
            sum += info.size;
    }
    os_folder_close(f);
    return sum;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static char *trim(char *text) {
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1])) text[--n] = 0;
    return text;
}

/* Adds the words that give an option this value; `word` has dashes. */
static pi_status add_option(word_array *words, const char *word, const char *value,
                            const char *where, pi_error *err) {
    const option *o = option_find(COMMAND_SERVE, word);
    const option_compat *h = o ? NULL : compat_find(COMMAND_SERVE, word);
    bool on = false, good = true;
    if (!o && !h) return error_set(err, PI_ERR_ARG, "unknown key: %s: %s", where, word + 2);
    if (o && is_of_server(o))
        return error_set(err, PI_ERR_ARG,
                         "the key concerns the whole server: %s: %s: give it on the command line",
                         where, word + 2);
    if (o && o->type == OPTION_FLAG) {
        if (!option_parse_bool(value, &on))
            return error_set(err, PI_ERR_ARG, "invalid value: %s: %s: expected true or false",
                             where, word + 2);
        if (option_is_opposite(o, word)) on = !on;
        good = on ? add_word(words, "--%s=%s", o->long_name, "1")
                  : add_word(words, "--%s=%s", o->long_name, "0");
    } else if (o) {
        good = add_word(words, "--%s=%s", o->long_name, value);
    } else if (h->argument) {
        good = add_word(words, "%s%s", word, "") && add_word(words, "%s%s", value, "");
    } else if (option_parse_bool(value, &on) && on) {
        good = add_word(words, "%s%s", word, "");
    }
    return good ? PI_OK : error_nomem(err, strlen(value), "list of models");
}

/* Handles a line KEY = VALUE of a section. m: NULL in [*], words: of the section. */
static pi_status read_key(listed_model *m, word_array *words, char *key, char *value,
                          const char *where, pi_error *err) {
    static const char *const idle[] = {"stop-timeout", "dedup-cache-models"};
    char word[OPTION_NAME_BYTES];
    bool on = false;
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
        if (strcmp(key, idle[i]) == 0) return PI_OK;
    if (strcmp(key, "load-on-startup") == 0) {
        if (!m || !option_parse_bool(value, &on))
            return error_set(err, PI_ERR_ARG,
                             "load-on-startup: %s: expected true or false, in a model's section",
                             where);
        m->at_start = on;
        return PI_OK;
    }
    if (m && (strcmp(key, "alias") == 0 || strcmp(key, "a") == 0)) {
        for (char *at = value; at && m->n_aliases < MAX_ALIASES;) {
            char *comma = strchr(at, ',');
            if (comma) *comma = 0;
            m->aliases[m->n_aliases] = mem_strdup(trim(at));
            if (!m->aliases[m->n_aliases]) return error_nomem(err, strlen(at), "alias");
            m->n_aliases++;
            at = comma ? comma + 1 : NULL;
        }
        return PI_OK;
    }
    for (char *c = key; *c; c++)
        if (*c == '_' && !starts_with(key, "LLAMA_")) *c = '-';
    if (option_llama_name(key, strlen(key), word))
        return add_option(words, word, value, where, err);
    if (strlen(key) + 3 > sizeof word)
        return error_set(err, PI_ERR_ARG, "unknown key: %s: %.40s...", where, key);
    snprintf(word, sizeof word, "--%s", key);
    if (!option_find(COMMAND_SERVE, word) && !compat_find(COMMAND_SERVE, word)) {
        char shorter[OPTION_NAME_BYTES];
        snprintf(shorter, sizeof shorter, "-%s", key);
        if (option_find(COMMAND_SERVE, shorter) || compat_find(COMMAND_SERVE, shorter))
            return add_option(words, shorter, value, where, err);
    }
    return add_option(words, word, value, where, err);
}

static pi_status read_list(serve_models *s, const char *path, word_array *common, pi_error *err) {
    char *text = NULL;
    size_t n_text = 0;
    int number = 0, section = -2; /* -2: before all sections, -1: [*], else number of a model */
    pi_status status = file_read(path, MAX_LIST, &text, &n_text, err);
    for (char *at = text; status == PI_OK && at && *at;) {
        char where[OS_PATH_MAX + 32];
        const size_t n = strcspn(at, "\r\n");
        char *line = at, *equals;
        at += n + (at[n] != 0);
        if (n > 0 || line[n] != '\r') number += line[n] != '\r' || line[n + 1] != '\n';
        line[n] = 0;
        line = trim(line);
        snprintf(where, sizeof where, "%s:%d", path, number);
        if (!*line || *line == ';' || *line == '#') continue;
        const size_t length = strlen(line);
        if (*line == '[' && line[length - 1] == ']') {
            listed_model *m;
            line[length - 1] = 0;
            char *name = trim(line + 1);
            if (strcmp(name, "*") == 0) {
                section = -1;
                continue;
            }
            if (!*name)
                status = error_set(err, PI_ERR_ARG, "a section without a name: %s", where);
            else
                status = add_model(s, name, NULL, &m, err);
            if (status == PI_OK) section = (int)(m - s->listed);
            continue;
        }
        equals = strchr(line, '=');
        if (!equals) {
            status = error_set(err, PI_ERR_ARG, "expected [NAME] or KEY = VALUE: %s", where);
            break;
        }
        *equals = 0;
        char *key = trim(line), *value = trim(equals + 1);
        if (section == -2 && strcmp(key, "version") == 0) {
            if (strcmp(value, "1") != 0)
                status = error_set(err, PI_ERR_UNSUPPORTED, "version %.20s: %s: expected 1", value,
                                   where);
            continue;
        }
        listed_model *m = section >= 0 ? &s->listed[section] : NULL;
        status = read_key(m, m ? &m->own : common, key, value, where, err);
    }
    mem_free(text);
    return status;
}

/* ---- options of each model ------------------------------------------------------------------- */

/* Parses [*], the section and the command line, in this order: the last value of an option
 * counts. */
static pi_status parse_options(listed_model *m, const cli_options *o, const word_array *common,
                               pi_error *err) {
    const size_t n = (size_t)common->n + (size_t)m->own.n + (size_t)o->n_words;
    int n_argv = 0;
    m->argv = mem_calloc(n + 1, sizeof *m->argv);
    m->options = mem_calloc(1, sizeof *m->options);
    if (!m->argv || !m->options) return error_nomem(err, sizeof *m->options, "options");
    for (int i = 0; i < common->n; i++) m->argv[n_argv++] = common->words[i];
    for (int i = 0; i < m->own.n; i++) m->argv[n_argv++] = m->own.words[i];
    for (int i = 0; i < o->n_words; i++) m->argv[n_argv++] = o->words[i];
    if (options_parse(m->options, COMMAND_SERVE, "serve", 0, n_argv, m->argv, err) != PARSE_OK)
        return err->status;
    m->options->sources = o->sources;
    pi_status status = model_source_settle(m->options, err);
    if (status == PI_OK) status = cli_overrides_check(m->options, err);
    const cli_options *c = m->options;
    const bool named = options_typed(c, &c->model) || options_typed(c, &c->hf_repo) ||
                       options_typed(c, &c->model_url);
    if (status == PI_OK && !named) {
        if (!m->file)
            return error_set(err, PI_ERR_ARG,
                             "no file of that name in the folders, and neither model nor hf-repo "
                             "in its section");
        m->options->model = m->file;
        m->options->hf_repo = m->options->hf_file = m->options->model_url = NULL;
    }
    return status;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const listed_model *)a)->name, ((const listed_model *)b)->name);
}

/* Refuses a name or alias that two models have. */
static pi_status check_names(const serve_models *s, pi_error *err) {
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < s->listed[i].n_aliases; k++) {
            const char *alias = s->listed[i].aliases[k];
            for (int j = 0; j < s->n; j++) {
                bool same = j != i && strcmp(alias, s->listed[j].name) == 0;
                for (int m = 0; j != i && m < s->listed[j].n_aliases; m++)
                    same = same || strcmp(alias, s->listed[j].aliases[m]) == 0;
                if (same)
                    return error_set(err, PI_ERR_ARG, "two models have the name %.100s: %s and %s",
                                     alias, s->listed[i].name, s->listed[j].name);
            }
        }
    }
    return PI_OK;
}

/* The serve_model of an entry has its place in the array, which must not move any more. */
static void fill_item(server_model *item, listed_model *m, bool is_default) {
    *item = (server_model){.name = m->name,
                           .aliases = (const char *const *)m->aliases,
                           .n_aliases = m->n_aliases,
                           .path = m->model.path,
                           .adapters = m->model.adapters,
                           .n_adapters = m->model.n_adapters,
                           .bytes = file_bytes(m->model.path),
                           .idle_seconds = (double)m->options->models_idle,
                           .at_start = m->at_start,
                           .is_default = is_default,
                           .open = serve_model_open,
                           .close = serve_model_close,
                           .user = &m->model};
}

pi_status serve_models_read(serve_models *s, const cli_options *o, pi_error *err) {
    pi_error why = {.status = PI_OK};
    pi_status status = PI_OK;
    bool has_default = false;
    s->common = mem_calloc(1, sizeof *s->common);
    if (!s->common) return error_nomem(err, sizeof *s->common, "models");
    for (int i = 0; i < o->models.count && status == PI_OK; i++) {
        os_info info;
        const char *path = o->models.values[i];
        const int problem = os_path_info(path, &info);
        if (problem)
            status = error_set_errno(err, problem, "--models %.200s", path);
        else if (info.kind == OS_FOLDER)
            status = read_folder(s, path, err);
        else
            status = read_list(s, path, s->common, err);
    }
    if (status == PI_OK && s->n == 0)
        status = error_set(err, PI_ERR_NOT_FOUND,
                           "no models: --models %.200s: neither GGUF files "
                           "nor sections of a list",
                           o->models.values[0]);
    if (s->n > 0) qsort(s->listed, (size_t)s->n, sizeof *s->listed, by_name);
    s->items = mem_calloc((size_t)s->n + 1, sizeof *s->items);
    if (status == PI_OK) status = check_names(s, err);
    if (status == PI_OK && !s->items) status = error_nomem(err, sizeof *s->items, "models");
    for (int i = 0; i < s->n && status == PI_OK; i++) {
        listed_model *m = &s->listed[i];
        status = parse_options(m, o, s->common, &why);
        m->model = (serve_model){.options = m->options, .name = m->name};
        if (status == PI_OK) status = serve_model_find(&m->model, &why);
        if (status != PI_OK) {
            error_set(err, status, "model %s: %.300s", m->name, why.message);
            break;
        }
        fill_item(&s->items[i], m, m->at_start && !has_default);
        has_default = has_default || m->at_start;
    }
    return status;
}

void serve_models_free(serve_models *s) {
    for (int i = 0; i < s->n; i++) {
        listed_model *m = &s->listed[i];
        free_words(&m->own);
        serve_model_free(&m->model);
        for (int k = 0; k < m->n_aliases; k++) mem_free(m->aliases[k]);
        mem_free(m->name);
        mem_free(m->file);
        mem_free(m->argv);
        mem_free(m->options);
    }
    if (s->common) free_words(s->common);
    mem_free(s->common);
    mem_free(s->listed);
    mem_free(s->items);
    *s = (serve_models){.n = 0};
}
