/* test_cli_nomem.c: runs whole commands with one allocation failing: the first, the second and so
 * on, until the command makes fewer allocations. Every run must end with status 1 and one line that
 * reports the lack of memory, and leave no file; ASan finds leaks. A command on a small model makes
 * up to a few hundred allocations. For the slow commands (bench measures the machine's memory,
 * synth solves for predictors, tune opens a model several times) only every SLOW_STRIDE-th
 * allocation fails. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_inside.h"
#include "cli_shell.h"
#include "clock.h"
#include "hf_folder.h"
#include "mem.h"

enum { MAX_LINE = 24, LINE_ROOM = 512, SLOW_STRIDE = 8 };

/* ---- the folder ------------------------------------------------------------------------------ */

/* A hash of the folder's files. */
static unsigned long folder_content(void) {
    unsigned long sum = 0;
    DIR *dir = opendir(".");
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        unsigned long hash = 5381;
        for (const char *c = e->d_name; *c; c++) hash = hash * 33 + (unsigned char)*c;
        sum += hash;
    }
    closedir(dir);
    return sum;
}

/* ---- one command ----------------------------------------------------------------------------- */

typedef struct cli_line {
    char text[LINE_ROOM];
    const char *words[MAX_LINE];
    int n;
} cli_line;

static void split(cli_line *l, const char *text) {
    snprintf(l->text, sizeof l->text, "%s", text);
    l->n = 0;
    for (char *at = l->text; *at;) {
        assert_true(l->n < MAX_LINE);
        l->words[l->n++] = at;
        at += strcspn(at, " ");
        if (*at) *at++ = 0;
    }
}

/* Runs with the n-th allocation failing. False: the command makes fewer allocations. */
static bool run_failing(const cli_line *l, int64_t n, cli_result *r) {
    int64_t before = mem_count();
    mem_fail_at(n);
    *r = cli_inside(l->n, l->words);
    mem_fail_at(0);
    return mem_count() - before >= n;
}

static void remove_outputs(void) {
    unlink("out");
}

/* text: words separated by spaces; the output file is `out`. shrinks: after some failures the
 * command succeeds with less memory. */
static void torture_every(const char *text, int stride, bool shrinks) {
    cli_line l;
    cli_result r;
    split(&l, text);
    double start = clock_seconds();
    int64_t before = mem_count();
    r = cli_inside(l.n, l.words); /* without failures */
    int64_t total = mem_count() - before;
    if (r.status != 0) fail_msg("%s: %s", text, r.err);
    assert_string_equal(r.err, "");
    cli_result_free(&r);
    remove_outputs();
    unsigned long content = folder_content();
    int64_t n = 1;
    for (; run_failing(&l, n, &r); n += stride) {
        /* `run` first ends the line of its text if both streams go to one file. */
        const char *said = r.err + (r.err[0] == '\n');
        bool good = r.status == 1 && cli_is_message(said) && strstr(said, "out of memory") &&
                    folder_content() == content;
        good = good || (shrinks && r.status == 0 && r.err[0] == 0);
        if (!good)
            fail_msg("%s: allocation %lld of %lld failed: status %d, folder %s, said: %s", text,
                     (long long)n, (long long)total, r.status,
                     folder_content() == content ? "as before" : "changed", r.err);
        cli_result_free(&r);
    }
    if (r.status != 0) fail_msg("%s: %s", text, r.err);
    cli_result_free(&r);
    remove_outputs();
    print_message("%4lld runs, %5.2f s: %s\n", (long long)(n - 1) / stride, clock_seconds() - start,
                  text);
    assert_true(n > stride);
}

static void torture(const char *text) {
    torture_every(text, 1, false);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void test_run(void **state) {
    (void)state;
    torture("run -q -m model.gguf -p abc -n 4 -t 1");
    torture("run -q -m model.gguf -f text -c 600 -n 4 -t 2 --json -r zz --no-mmap -l 5-inf "
            "--dry-multiplier 0.8 --repeat-penalty 1.1");
    torture("run -q -m model.gguf -p abc -n 4 -t 1 --prompt-cache out --prompt-cache-all");
}

static void test_eval(void **state) {
    (void)state;
    torture("eval -q -m model.gguf --tokens ids --logits-out out -t 1");
    torture("eval -q -m model.gguf --tokens ids --logits-out out -t 2 --batch 1 -ctk f32 "
            "--override-kv llama.context_length=int:77 --override-kv x.new=str:text");
}

static void test_sparse_modes(void **state) {
    (void)state;
    torture("eval -q -m sparse.gguf --tokens ids --logits-out out -t 1 --mode exact");
    torture("eval -q -m sparse.gguf --tokens ids --logits-out out -t 1 --mode predict");
    torture("eval -q -m sparse.gguf --tokens ids --logits-out out -t 2 --mode exact");
    torture("inspect -q sparse.gguf --svg out");
}

static void test_tokenize(void **state) {
    (void)state;
    torture("tokenize -q -m model.gguf -p some_text --ids");
    torture("tokenize -q -m model.gguf -p some_text");
    torture("tokenize -q -m model.gguf --detok -p 260");
    torture("embed -q -m model.gguf -p some_text --json");
}

static void test_perplexity(void **state) {
    (void)state;
    torture("perplexity -q -m model.gguf -f text -c 16 -t 1");
    torture("perplexity -q -m model.gguf -f text -c 16 -t 2 --kl-divergence-base out");
    torture("perplexity -q -m model.gguf -t 1 --kl-divergence-base base --kl-divergence --json");
}

static void test_quantize(void **state) {
    (void)state;
    torture("quantize -q model.gguf out Q8_0 1");
    torture("completion all pages");
    torture(
        "quantize -q model.gguf out Q4_0 2 --imatrix importance --json --tensor-type down=q8_0");
}

static void test_imatrix(void **state) {
    (void)state;
    torture("imatrix -q -m model.gguf -f text -o out -c 16 -t 1");
}

static void test_synth(void **state) {
    (void)state;
    torture("synth -q -o out --layers 1 --plain -t 1");
    torture_every("synth -q -o out --layers 1 --rank 32 -t 1", SLOW_STRIDE, false);
}

static void test_tune(void **state) {
    (void)state;
    torture_every("tune -q sparse.gguf -o out -t 1 -c 32", SLOW_STRIDE, false);
}

static void test_convert(void **state) {
    (void)state;
#ifdef TEST_HAS_JSON
    hf_folder folder;
    model_shape shape = shape_tiny("llama");
    char line[LINE_ROOM];
    folder_open(&folder);
    folder_write_model(&folder, &shape);
    folder_write_text(&folder, "tokenizer.json", tiny_bpe_json);
    snprintf(line, sizeof line, "convert -q %.400s -o out --type q8_0 -t 1", folder.dir);
    torture(line);
    folder_close(&folder);
#else
    print_message("*** SKIPPED: built without jansson ***\n");
#endif
}

static void test_bench(void **state) {
    (void)state;
    torture_every("bench -q -m model.gguf -p 4 -n 2 -r 1 -t 1", SLOW_STRIDE, true);
}

static void test_place(void **state) {
    (void)state;
    torture("place -q -m sparse.gguf --profile rtx-3060-ddr4 --vram-budget 0.66 --svg out");
    torture("place -q -m model.gguf --json");
    torture("place -q --shape tiny --layers 1 --rank 32 --json --profile rtx-3060-ddr4");
#ifdef TEST_HAS_JSON
    torture("place -q -m model.gguf --json --profile machine");
#endif
}

static void test_inspect(void **state) {
    (void)state;
    torture("inspect -q model.gguf -v");
    torture("inspect -q model.gguf --json -v");
    torture("inspect -q model.gguf --plan");
    torture("inspect -q importance");
}

static void test_template(void **state) {
    (void)state;
    torture("template -q --chat-template llama2-sys -m model.gguf -f request");
    torture("template -q --chat-template-file jinja -f request");
}

static void test_chat(void **state) {
    (void)state;
    torture("chat -q -m model.gguf --chat-template chatml -sys a -p b -n 2 -c 256 --json");
    torture("run -q -m model.gguf -p a -n 2 -j {}");
}

static int setup(void **state) {
    int status = shell_setup(state);
    if (status != 0) return status;
    static const char ids[] = "1 260 261 262 263 264 265\n";
    char text[512];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i % 7 ? 'a' + i * i % 26 : ' ');
    shell_write("ids", ids, sizeof ids - 1);
    shell_write("text", text, sizeof text);
    static const char request[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
    static const char jinja[] = "{{ messages|tojson(indent=2) }}{% set x %}a{% endset %}{{ x }}";
    shell_write("request", request, sizeof request - 1);
    shell_write("jinja", jinja, sizeof jinja - 1);
    return sh("$PI perplexity -q -m model.gguf -f text -c 16 --kl-divergence-base base && "
              "$PI imatrix -q -m model.gguf -f text -c 16 -o importance && "
              "$PI synth -q --layers 1 --rank 32 -o sparse.gguf;"
              "echo '{\"cpu\": {\"stream_gbps\": 40, \"gather_gbps\": 20}}' >machine");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),          cmocka_unit_test(test_eval),
        cmocka_unit_test(test_tokenize),     cmocka_unit_test(test_perplexity),
        cmocka_unit_test(test_quantize),     cmocka_unit_test(test_imatrix),
        cmocka_unit_test(test_place),        cmocka_unit_test(test_synth),
        cmocka_unit_test(test_tune),         cmocka_unit_test(test_convert),
        cmocka_unit_test(test_inspect),      cmocka_unit_test(test_bench),
        cmocka_unit_test(test_sparse_modes), cmocka_unit_test(test_template),
        cmocka_unit_test(test_chat),
    };
    return cmocka_run_group_tests_name("cli_nomem", tests, setup, shell_teardown);
}
