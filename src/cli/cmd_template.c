/* cmd_template.c: renders a request with a chat template, byte for byte. */
#include <string.h>
#include <time.h>

#include "cli.h"
#include "cli_text.h"
#include "file.h"
#include "mem.h"
#include "os_file.h"

/* Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so that the
 * leap day is the last day of its year. */
static int64_t days_of(int year, int month, int day) {
    int64_t y = month > 2 ? year : year - 1;
    int64_t era = (y >= 0 ? y : y - 399) / 400, of_era = y - era * 400;
    int64_t of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* Parses 2025-07-26 or 2025-07-26T09:05:03 (or a blank instead of T). Z or an offset is ignored:
 * the template sees the time as written. */
static bool parse_time(const char *text, struct tm *out) {
    int year, month, day, hour = 0, minute = 0, second = 0, n = 0;
    if (sscanf(text, "%4d-%2d-%2d%n", &year, &month, &day, &n) != 3) return false;
    const char *end = text + n;
    if (*end == 'T' || *end == ' ') {
        if (sscanf(end + 1, "%2d:%2d%n", &hour, &minute, &n) != 2) return false;
        end += 1 + n;
        if (*end == ':') {
            if (sscanf(end + 1, "%2d%n", &second, &n) != 1) return false;
            end += 1 + n;
        }
    }
    if (*end == '.') end += 1 + strspn(end + 1, "0123456789");
    if (*end == 'Z') end++;
    if (*end == '+' || *end == '-') end += 1 + strspn(end + 1, "0123456789:");
    if (*end || month < 1 || month > 12 || day < 1 || hour < 0 || hour > 23 || minute < 0 ||
        minute > 59 || second < 0 || second > 60)
        return false;
    int next_year = month == 12 ? year + 1 : year, next_month = month % 12 + 1;
    int64_t days = days_of(year, month, day);
    if (days >= days_of(next_year, next_month, 1)) return false; /* such as a 31st of June */
    *out = (struct tm){.tm_year = year - 1900,
                       .tm_mon = month - 1,
                       .tm_mday = day,
                       .tm_hour = hour,
                       .tm_min = minute,
                       .tm_sec = second,
                       .tm_wday = (int)(((days + 4) % 7 + 7) % 7), /* the first day is a Thursday */
                       .tm_yday = (int)(days - days_of(year, 1, 1))};
    return true;
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
    char path[OS_PATH_MAX], *source = NULL, *request = NULL;
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
    if (status == PI_ERR_ARG) err.status = PI_ERR_FORMAT; /* the template's refusal */
    return status == PI_OK ? EXIT_DONE : cli_failed(&err);
}
