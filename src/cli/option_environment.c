/* option_environment.c: reads the environment: POWERINFER_*, the variables of llama.cpp's server
 * and of Hugging Face's tools, the user's folders and the terminal. No other file of the project
 * reads the environment. */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "options.h"
#include "os_file.h"
#include "os_text.h"

/* ---- POWERINFER_* ---------------------------------------------------------------------------- */

static pi_status read_environment(cli_options *out, uint32_t command, pi_error *err) {
    for (size_t i = 0; i < option_count; i++) {
        const option *o = &option_table[i];
        if (!(o->commands & command)) continue;
        char variable[OPTION_NAME_BYTES];
        snprintf(variable, sizeof variable, "POWERINFER_%s", o->long_name);
        for (char *c = variable; *c; c++) {
            if (*c == '-') *c = '_';
            if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
        }
        const char *text = getenv(variable);
        if (!text || !*text) continue; /* an empty variable counts as not set */
        pi_status status = option_set(out, o, text, variable, err);
        if (status != PI_OK) return status;
        option_mark(out->in_environment, o);
    }
    return PI_OK;
}

bool options_launched_by_mpi(void) {
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *text = getenv(sizes[i]);
        if (text && strtol(text, NULL, 10) > 1) return true;
    }
    const char *rank = getenv("PMIX_RANK"), *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return rank && tasks && strtol(tasks, NULL, 10) > 1;
}

const char *options_temporary_folder(void) {
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/var/tmp";
}

/* ---- LLAMA_ARG_* ----------------------------------------------------------------------------- */

/* LLAMA_ARG_CTX_SIZE is --ctx-size, and so on; these variables have other names. */
static const struct {
    const char *name, *option;
} llama_variables[] = {
    {"LLAMA_API_KEY", "--api-key"},
    {"LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT", "--checkpoint-min-step"},
    {"LLAMA_ARG_ENDPOINT_METRICS", "--metrics"},
    {"LLAMA_ARG_ENDPOINT_PROPS", "--props"},
    {"LLAMA_ARG_ENDPOINT_SLOTS", "--slots"},
    {"LLAMA_ARG_N_PARALLEL", "--parallel"},
    {"LLAMA_ARG_ROPE_SCALING_TYPE", "--rope-scaling"},
    {"LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", "--spec-draft-type-k"},
    {"LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", "--spec-draft-type-v"},
    {"LLAMA_ARG_STATIC_PATH", "--path"},
    {"LLAMA_ARG_THINK", "--reasoning-format"},
    {"LLAMA_ARG_THINK_BUDGET", "--reasoning-budget"},
    {"LLAMA_ARG_THINK_BUDGET_MESSAGE", "--reasoning-budget-message"},
    {"LLAMA_ARG_UBATCH", "--ubatch-size"},
};

bool option_llama_name(const char *variable, size_t n, char word[OPTION_NAME_BYTES]) {
    static const char prefix[] = "LLAMA_ARG_";
    size_t n_prefix = strlen(prefix);
    for (size_t i = 0; i < sizeof llama_variables / sizeof *llama_variables; i++) {
        const char *name = llama_variables[i].name;
        if (strlen(name) != n || memcmp(name, variable, n) != 0) continue;
        snprintf(word, OPTION_NAME_BYTES, "%s", llama_variables[i].option);
        return true;
    }
    if (n <= n_prefix || n - n_prefix + 3 > OPTION_NAME_BYTES ||
        strncmp(variable, prefix, n_prefix) != 0)
        return false;
    snprintf(word, OPTION_NAME_BYTES, "--%.*s", (int)(n - n_prefix), variable + n_prefix);
    for (char *c = word; *c; c++) {
        if (*c == '_') *c = '-';
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
    return true;
}

/* Sets a flag; word: its name or a name that turns it off. */
static pi_status set_llama_flag(cli_options *out, const option *o, const char *word, bool value,
                                pi_error *err) {
    option_mark(out->in_environment, o);
    return option_set(out, o, value != option_is_opposite(o, word) ? "1" : "0", word, err);
}

/* Handles a variable whose option has no effect here. When "--name" is off, "--no-name" may have an
 * effect. */
static pi_status read_idle_variable(cli_options *out, uint32_t command, const option_compat *h,
                                    const char *word, const char *variable, const char *text,
                                    pi_error *err) {
    bool value = true;
    char negated[OPTION_NAME_BYTES + 8];
    if (!h->argument && !option_parse_bool(text, &value)) value = true;
    if (!value) {
        snprintf(negated, sizeof negated, "--no-%s", word + 2);
        const option *o = option_find(command, negated);
        if (o && options_given(out, (char *)out + o->offset)) return PI_OK;
        if (o) return set_llama_flag(out, o, negated, true, err);
        if (!compat_find(command, negated)) return PI_OK; /* turned off */
    }
    option_add_idle(out, variable);
    return PI_OK;
}

/* Handles a variable of llama.cpp. LLAMA_ARG_NO_X turns X off, whatever its value. */
static pi_status read_llama_variable(cli_options *out, uint32_t command, const char *variable,
                                     const char *word, const char *text, pi_error *err) {
    const option *o = option_find(command, word);
    const option_compat *h = compat_find(command, word);
    bool no = strncmp(word, "--no-", 5) == 0, value = true;
    if (!o && !h && !option_find(~0u, word) && !compat_find(~0u, word))
        option_add_idle(out, variable);
    if (!o)
        return h ? read_idle_variable(out, command, h, word, variable, no ? "1" : text, err)
                 : PI_OK;
    if (options_given(out, (char *)out + o->offset)) return PI_OK; /* POWERINFER_ */
    if (o->type == OPTION_FLAG && !no && !option_parse_bool(text, &value))
        return error_set(err, PI_ERR_ARG, "invalid value: %s \"%.200s\": expected 1 or 0", variable,
                         text);
    if (o->type == OPTION_FLAG) return set_llama_flag(out, o, word, value, err);
    option_mark(out->in_environment, o);
    return option_set(out, o, text, variable, err);
}

/* Reads the variables of llama.cpp's server, which containers and services set. */
static pi_status read_llama_environment(cli_options *out, uint32_t command, pi_error *err) {
    pi_status status = PI_OK;
    for (char *const *at = os_environment(); at && *at && status == PI_OK; at++) {
        char variable[OPTION_NAME_BYTES], word[OPTION_NAME_BYTES];
        size_t n = strcspn(*at, "=");
        if (n >= sizeof variable || !(*at)[n] || !(*at)[n + 1]) continue;
        if (!option_llama_name(*at, n, word)) continue;
        snprintf(variable, sizeof variable, "%.*s", (int)n, *at);
        status = read_llama_variable(out, command, variable, word, *at + n + 1, err);
    }
    return status;
}

/* ---- the user's folders, downloads, the terminal --------------------------------------------- */

/* The user's folder: $HOME, or on Windows %USERPROFILE%. NULL: neither is an absolute path. */
static const char *home_folder(void) {
    static const char *const variables[] = {"HOME", "USERPROFILE"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *home = getenv(variables[i]);
        if (home && os_path_is_absolute(home)) return home;
    }
    return NULL;
}

/* Path of a file in the program's folder below $variable (XDG_CACHE_HOME, XDG_STATE_HOME), or below
 * usual in the user's folder. False: neither is known. */
static bool own_path(const char *variable, const char *usual, const char *name, char *buf,
                     size_t n_buf) {
    static const char folder[] = "powerinfer";
    const char *base = getenv(variable), *home = home_folder();
    int n;
    if (base && os_path_is_absolute(base)) /* the XDG specification: relative paths are ignored */
        n = snprintf(buf, n_buf, "%s/%s/%s", base, folder, name);
    else if (home)
        n = snprintf(buf, n_buf, "%s/%s/%s/%s", home, usual, folder, name);
    else
        return false;
    return n > 0 && (size_t)n < n_buf;
}

bool options_no_color(void) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return (no_color && *no_color) || (terminal && strcmp(terminal, "dumb") == 0);
}

int options_columns(void) {
    enum { LEAST = 2, MOST = 10000 };
    const char *text = getenv("COLUMNS");
    int64_t columns;
    return text && option_parse_integer(text, &columns) && columns >= LEAST && columns <= MOST
               ? (int)columns
               : 0;
}

/* Finds the cache folder of Hugging Face's tools from their variables, in their order. */
static void find_hub_folder(char *buf, size_t n_buf) {
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"},
                  {"USERPROFILE", "/.cache/huggingface/hub"}}; /* Windows */
    buf[0] = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !buf[0]; i++) {
        const char *base = getenv(places[i].variable);
        if (!base || !*base) continue;
        int n = snprintf(buf, n_buf, "%s%s", base, places[i].below);
        if (n < 0 || (size_t)n >= n_buf) buf[0] = 0;
    }
}

/* Variables of Hugging Face's tools; options take precedence. */
static void read_hub_environment(cli_options *out) {
    const char *token = getenv("HF_TOKEN"), *offline = getenv("HF_HUB_OFFLINE");
    bool is_offline;
    find_hub_folder(out->hub_folder, sizeof out->hub_folder);
    if (!own_path("XDG_CACHE_HOME", ".cache", "urls", out->urls_folder, sizeof out->urls_folder))
        out->urls_folder[0] = 0;
    out->hf_endpoint = getenv("HF_ENDPOINT");
    if (!out->hf_token && token && *token) out->hf_token = token;
    if (offline && option_parse_bool(offline, &is_offline) && is_offline) out->offline = true;
}

pi_status option_read_environment(cli_options *out, uint32_t command, pi_error *err) {
    pi_status status = read_environment(out, command, err);
    if (status == PI_OK) status = read_llama_environment(out, command, err);
    if (status != PI_OK) return status;
    if (!own_path("XDG_CACHE_HOME", ".cache", "machine.json", out->machine, sizeof out->machine))
        out->machine[0] = 0;
    if (!own_path("XDG_CACHE_HOME", ".cache", "shaders", out->shaders_folder,
                  sizeof out->shaders_folder))
        out->shaders_folder[0] = 0;
    if (!own_path("XDG_STATE_HOME", ".local/state", "chat_history", out->history,
                  sizeof out->history))
        out->history[0] = 0;
    read_hub_environment(out);
    return PI_OK;
}
