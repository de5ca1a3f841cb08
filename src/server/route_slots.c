/* route_slots.c: the state of slots, and their KV caches in files (--slot-save-path). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "dialects.h"
#include "fields.h"
#include "mem.h"
#include "os_file.h"

enum MHD_Result route_slots(exchange *x) {
    const served_model *m = x->served;
    size_t n = (size_t)m->options.n_slots;
    if (x->server->options.hides_slots)
        return http_reply_error(x, 404, "this server was started without this route");
    slot_view *views = mem_calloc(n, sizeof *views);
    bytes body = {0};
    bytes_json j;
    if (!views || !bytes_json_begin(&j, &body)) {
        mem_free(views);
        return http_reply_error(x, 500, "out of memory");
    }
    scheduler_get_slots(m->scheduler, views);
    json_put_array(&j.writer, NULL);
    for (size_t i = 0; i < n; i++) {
        const slot_view *v = &views[i];
        json_put_object(&j.writer, NULL);
        json_put_int(&j.writer, "id", (int64_t)i);
        json_put_int(&j.writer, "n_ctx", m->options.n_ctx);
        json_put_bool(&j.writer, "is_processing", v->busy);
        if (x->server->options.isolates_keys && v->owner != x->key) {
            json_end_object(&j.writer);
            continue;
        }
        json_put_bool(&j.writer, "in_prompt", v->in_prompt);
        json_put_bool(&j.writer, "speculative", m->options.speculator != NULL);
        json_put_int(&j.writer, "n_tokens", v->n_tokens);
        json_put_int(&j.writer, "n_prompt", v->n_prompt);
        json_put_int(&j.writer, "n_cached", v->n_cached);
        json_put_int(&j.writer, "n_decoded", v->n_generated);
        json_end_object(&j.writer);
    }
    json_end_array(&j.writer);
    mem_free(views);
    return http_reply_json(x, &j, &body);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Finds the file of the server's folder that the request names; names consist of letters, digits,
 * and - _ . within the name. */
static pi_status find_file(const server *s, int owner, const json_node *body, char *path,
                           size_t n_path, const char **name, pi_error *err) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    pi_status status = field_text(body, "filename", name, err);
    if (status != PI_OK) return status;
    size_t n = *name ? strlen(*name) : 0;
    if (n == 0 || n > OS_NAME_MAX || (*name)[0] == '.' || strspn(*name, allowed) != n)
        return error_set(
            err, PI_ERR_ARG,
            "filename: must be a name of letters, digits, -, _ and ., without folders");
    char key[16] = ""; /* each isolated key has separate files */
    if (s->options.isolates_keys) snprintf(key, sizeof key, "key%d-", owner);
    int written = snprintf(path, n_path, "%s/%s%s", s->options.slot_folder, key, *name);
    return written > 0 && (size_t)written < n_path
               ? PI_OK
               : error_set(err, PI_ERR_ARG, "filename: is too long");
}

/* The number after "/slots/"; -1: no such slot. */
static int32_t slot_number(const exchange *x) {
    char *end = NULL;
    const char *digits = x->path + strlen("/slots/");
    errno = 0;
    long n = strtol(digits, &end, 10);
    bool good = end > digits && !*end && *digits >= '0' && *digits <= '9' && !errno;
    return good && n < x->served->options.n_slots ? (int32_t)n : -1;
}

static enum MHD_Result reply(exchange *x, const slot_job *job, const char *name, double seconds) {
    static const char *const members[][3] = {
        [SLOT_SAVE] = {"n_saved", "n_written", "save_ms"},
        [SLOT_RESTORE] = {"n_restored", "n_read", "restore_ms"},
        [SLOT_ERASE] = {"n_erased", NULL, NULL}};
    const char *const *m = members[job->action];
    os_info info;
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_put_object(&j.writer, NULL);
    json_put_int(&j.writer, "id_slot", job->slot);
    if (name) json_put_text(&j.writer, "filename", name);
    json_put_int(&j.writer, m[0], job->n_tokens);
    if (m[1])
        json_put_int(&j.writer, m[1], os_path_info(job->path, &info) == 0 ? (int64_t)info.size : 0);
    if (m[2]) {
        json_put_object(&j.writer, "timings");
        json_put_number(&j.writer, m[2], 1e3 * seconds);
        json_end_object(&j.writer);
    }
    json_end_object(&j.writer);
    return http_reply_json(x, &j, &body);
}

static bool find_action(const exchange *x, slot_action *out) {
    static const char *const names[] = {
        [SLOT_SAVE] = "save", [SLOT_RESTORE] = "restore", [SLOT_ERASE] = "erase"};
    const char *action = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND,
                                                     "action");
    for (int i = SLOT_SAVE; action && i <= SLOT_ERASE; i++) {
        *out = (slot_action)i;
        if (strcmp(action, names[i]) == 0) return true;
    }
    return false;
}

enum MHD_Result route_slot_action(exchange *x) {
    const server *s = x->server;
    const json_node *body = NULL;
    enum MHD_Result result;
    char path[OS_PATH_MAX];
    const char *name = NULL;
    pi_error err = {.status = PI_OK};
    slot_job job = {.slot = slot_number(x), .path = path, .owner = http_owner(x)};
    if (!s->options.slot_folder)
        return http_reply_error(x, 501, "the server has no folder for saved slots");
    if (job.slot < 0) return http_reply_error(x, 404, "there is no slot %s", x->path + 7);
    if (!find_action(x, &job.action))
        return http_reply_error(x, 400, "action: must be save, restore or erase");
    if (job.action != SLOT_ERASE) {
        if (!http_parse_body(x, &body, &result)) return result;
        if (find_file(s, job.owner, body, path, sizeof path, &name, &err) != PI_OK)
            return http_reply_failed(x, &err);
    }
    double start = clock_seconds();
    pi_status status = scheduler_run_job(x->served->scheduler, &job, &err);
    return status == PI_OK ? reply(x, &job, name, clock_seconds() - start)
                           : http_reply_failed(x, &err);
}
