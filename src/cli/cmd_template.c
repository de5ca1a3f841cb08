/* cmd_template.c: renders a request with a chat template, byte for byte. */
#include <limits.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "cli_text.h"
#include "file.h"
#include "mem.h"

/* 2025-07-26, 2025-07-26T09:05:03 (or a blank for the T), with Z or an offset that is not used: the
 * template sees the time as it is written. */
static bool parse_time(const char *text, struct tm *out) {
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M",
                                        "%Y-%m-%d"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(text, forms[i], &tm);
        if (!end) continue;
        if (*end == '.') end += 1 + strspn(end + 1, "0123456789");
        if (*end == 'Z') end++;
        if (*end == '+' || *end == '-') end += 1 + strspn(end + 1, "0123456789:");
        if (*end) continue;
        struct tm whole = tm;
        timegm(&whole); /* fills in the day of the week; moves a 31st of June to July */
        if (whole.tm_mday != tm.tm_mday || whole.tm_mon != tm.tm_mon) return false;
        *out = whole;
        return true;
    }
    return false;
}

static int check(const cli_options *o, struct tm *now) {
    if (!o->file) return cli_wrong("no request: template: give one with -f FILE");
    if (o->chat_template && o->chat_template_file)
        return cli_wrong("two templates: --chat-template and --chat-template-file: give one of "
                         "them");
    if (o->now && !parse_time(o->now, now))
        return cli_wrong("not a time: --now: %.200s: write it as 2025-07-26T09:05:03", o->now);
    return EXIT_DONE;
}

static pi_status print_prompt(const cli_options *o, const struct tm *now, pi_error *err) {
    char path[PATH_MAX], *source = NULL, *request = NULL;
    size_t n_request = 0;
    pi_template_options options = {.name = o->chat_template, .now = now};
    options.bos = o->bos_text;
    options.eos = o->eos_text;
    pi_status status = PI_OK;
    bool own = !o->chat_template && !o->chat_template_file;
    if (o->model || own) {
        status = cli_model_path(o, path, sizeof path, err);
        options.model = path;
    }
    if (!status && o->chat_template_file) {
        status = file_read_stream(o->chat_template_file, CLI_TEXT_MAX, &source, &options.n_source,
                                  err);
        options.source = source;
    }
    if (!status) status = file_read_stream(o->file, CLI_TEXT_MAX, &request, &n_request, err);
    if (!status) status = pi_template(request, n_request, &options, stdout, err);
    if (status == PI_ERR_NOT_FOUND && own) {
        pi_error why = *err;
        error_set(err, status,
                  "%s: choose one with --chat-template NAME or --chat-template-file "
                  "FILE",
                  why.message);
    } else if (status == PI_ERR_NOT_FOUND && o->chat_template) {
        pi_error why = *err;
        error_set(err, status, "%s: see --chat-template list", why.message);
    }
    mem_free(source);
    mem_free(request);
    return status;
}

int cmd_template(const cli_options *o) {
    pi_error err = {.status = PI_OK};
    struct tm now;
    if (o->chat_template && strcmp(o->chat_template, "list") == 0) {
        for (size_t i = 0; pi_template_name(i); i++) puts(pi_template_name(i));
        return EXIT_DONE;
    }
    int wrong = check(o, &now);
    if (wrong) return wrong;
    pi_status status = print_prompt(o, o->now ? &now : NULL, &err);
    if (status == PI_ERR_ARG) err.status = PI_ERR_FORMAT; /* a refusal is no wrong command line */
    return status == PI_OK ? EXIT_DONE : cli_failed(&err);
}
