/* test_template_shared.c: the chat templates of published models, with the exact text that Jinja2
 * renders for hundreds of requests, or the message with which a template refuses one. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "file.h"
#include "shared_data.h"
#include "template_case.h"

enum { PATH_ROOM = 4096 };

/* Renders one request; false, after printing a line, when the result is not the expected one. */
static bool check(const char *name, const template_program *program, const json_node *row) {
    const char *wanted = "", *label = "";
    char *text = NULL;
    size_t n_wanted = 0, n_text, n;
    pi_error err = {.status = PI_OK};
    json_as_string(json_get(row, "case"), &label, &n);
    bool refused = !json_get(row, "output");
    json_as_string(json_get(row, refused ? "error" : "output"), &wanted, &n_wanted);
    template_input input = case_input(json_get(row, "input"));
    pi_status status = template_render(program, &input, &text, &n_text, &err);
    bool good = status == PI_OK && n_text == n_wanted && memcmp(text, wanted, n_text) == 0;
    if (refused) good = status == PI_ERR_ARG && strcmp(err.message, wanted) == 0;
    if (!good)
        fprintf(stderr, "%s, %s: got %s\n--- wanted\n%s\n---\n", name, label,
                status ? err.message : text, wanted);
    mem_free(text);
    return good;
}

/* Tests NAME.jinja with NAME.cases.json; returns the number of cases. */
static size_t check_template(const char *folder, const char *name, size_t *failed) {
    char path[2 * PATH_ROOM], *source;
    size_t n_source;
    pi_error err = {.status = PI_OK};
    json_doc *doc;
    template_program *program;
    snprintf(path, sizeof path, "%s/%s.jinja", folder, name);
    if (file_read(path, TEMPLATE_MAX_BYTES, &source, &n_source, &err)) fail_msg("%s", err.message);
    if (template_parse(source, n_source, &program, &err)) fail_msg("%s: %s", name, err.message);
    snprintf(path, sizeof path, "%s/%s.cases.json", folder, name);
    if (json_parse_file(path, &doc, &err)) fail_msg("%s", err.message);
    size_t n = json_count(json_root(doc));
    for (size_t i = 0; i < n; i++) *failed += !check(name, program, json_at(json_root(doc), i));
    json_free(doc);
    template_free(program);
    mem_free(source);
    return n;
}

static void test_published_templates(void **state) {
    static const char ending[] = ".cases.json";
    char folder[PATH_ROOM];
    size_t cases = 0, templates = 0, failed = 0;
    (void)state;
    assert_true(shared_path(folder, sizeof folder, "conformance/chat"));
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        size_t n = strlen(e->d_name), m = strlen(ending);
        if (n <= m || strcmp(e->d_name + n - m, ending) != 0) continue;
        e->d_name[n - m] = 0;
        cases += check_template(folder, e->d_name, &failed);
        templates++;
    }
    closedir(dir);
    print_message("%zu templates, %zu cases, %zu failed\n", templates, cases, failed);
    assert_true(templates > 0);
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_templates)};
    char folder[PATH_ROOM];
    if (!shared_path(folder, sizeof folder, "conformance/chat")) return SHARED_SKIPPED;
#ifndef TEST_HAS_JSON
    return SHARED_SKIPPED;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
