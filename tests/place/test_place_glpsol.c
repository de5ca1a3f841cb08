/* test_place_glpsol.c: compares the solver with an exact one: glpsol of GLPK solves small
 * instances, written as mixed integer programs (CPLEX LP format). The formulation is independent: a
 * binary variable per group of neurons, continuous variables for the slower of two devices,
 * exchanges and changes of primary. Without glpsol the test is skipped with a message. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "random_place.h"

enum { INSTANCES = 60, LAYERS_MAX = 5, UNITS_MAX = 8 };

/* Times are in microseconds, bytes in thousands: with numbers of similar size glpsol's tolerances
 * (about 1e-7) do no harm. The comparison allows for them. */
static const double MICRO = 1e6, KILO = 1e-3, AGREE = 1e-4;

static double cost(const place_machine *m, int d, double streamed, double gathered) {
    return MICRO * (streamed / m->device[d].stream_gbps + gathered / m->device[d].gather_gbps) /
           1e9;
}

/* a: attention on the GPU; z: a group on the GPU; t: time of the neurons; e: exchange; c: change of
 * primary; g: whether the GPU is used. */
static void write_layer(FILE *f, const place_workload *w, const place_machine *m, int i) {
    const place_layer *l = &w->layers[i];
    int n = (int)(l->n / l->unit);
    double all = 0, overhead[] = {MICRO * l->neuron_steps[SIDE_CPU] * m->device[SIDE_CPU].step,
                                  MICRO * l->neuron_steps[SIDE_GPU] * m->device[SIDE_GPU].step};
    fprintf(f, " t%d_gpu: t%d", i, i);
    for (int u = 0; u < n; u++) { /* the first group of a device adds its fixed cost */
        double seconds = cost(m, SIDE_GPU, l->unit_stream, l->gather[u + 1] - l->gather[u]);
        fprintf(f, " - %.12g z%d_%d", seconds + (u == 0 ? overhead[SIDE_GPU] : 0), i, u);
    }
    fprintf(f, " >= 0\n t%d_cpu: t%d", i, i);
    for (int u = 0; u < n; u++) {
        double seconds = cost(m, SIDE_CPU, l->unit_stream, l->gather[u + 1] - l->gather[u]);
        if (u == n - 1) seconds += overhead[SIDE_CPU];
        fprintf(f, " + %.12g z%d_%d", seconds, i, u);
        all += seconds;
    }
    fprintf(f, " >= %.12g\n", all);
    if (m->shared) {
        int fast = m->device[SIDE_GPU].stream_gbps > m->device[SIDE_CPU].stream_gbps;
        double bytes = n * l->unit_stream + l->gather[n];
        fprintf(f, " t%d_bus: t%d >= %.12g\n", i, i, cost(m, fast ? SIDE_GPU : SIDE_CPU, bytes, 0));
    }
    for (int u = 0; u + 1 < n; u++)
        fprintf(f, " order%d_%d: z%d_%d - z%d_%d >= 0\n", i, u, i, u, i, u + 1);
    fprintf(f, " away%d: e%d - a%d + z%d_%d >= 0\n", i, i, i, i, n - 1);
    fprintf(f, " out%d: e%d + a%d - z%d_0 >= 0\n", i, i, i, i);
    fprintf(f, " up%d: c%d - a%d + a%d >= 0\n", i, i, i, i + 1);
    fprintf(f, " down%d: c%d + a%d - a%d >= 0\n", i, i, i, i + 1);
    if (l->with_previous) fprintf(f, " with%d: a%d - a%d = 0\n", i, i, i - 1);
    fprintf(f, " use_a%d: g - a%d >= 0\n use_z%d: g - z%d_0 >= 0\n", i, i, i, i);
}

static double always(const place_workload *w, const place_machine *m, int i, int d) {
    double bytes = (double)w->head_bytes;
    int32_t steps = i < w->n_layers ? w->layers[i].always_steps[d] : w->head_steps[d];
    if (i < w->n_layers) {
        const place_layer *l = &w->layers[i];
        bytes = (double)(l->always_bytes + l->predictor_bytes + l->kv_read);
    }
    return cost(m, d, bytes, 0) + MICRO * steps * m->device[d].step;
}

/* Returns the constant part of the objective. The head is item n_layers. */
static double write_program(FILE *f, const place_workload *w, const place_machine *m,
                            uint64_t budget) {
    int n = w->n_layers;
    double constant = 0;
    fprintf(f, "Minimize\n obj:");
    for (int i = 0; i <= n; i++) {
        double cpu = always(w, m, i, SIDE_CPU);
        constant += cpu;
        fprintf(f, " %+.12g a%d", always(w, m, i, SIDE_GPU) - cpu, i);
        if (i < n)
            fprintf(f, " + t%d + %.12g e%d + %.12g c%d\n", i,
                    MICRO * plain_exchange(m, w->layers[i].exchange_bytes), i,
                    MICRO * plain_exchange(m, w->stream_bytes), i);
    }
    fprintf(f, "\nSubject To\n");
    for (int i = 0; i < n; i++) write_layer(f, w, m, i);
    fprintf(f, " use_head: g - a%d >= 0\n budget:", n);
    for (int i = 0; i < n; i++) {
        const place_layer *l = &w->layers[i];
        fprintf(f, " + %.12g a%d\n",
                KILO * (double)(l->always_bytes + l->predictor_bytes + l->kv_bytes), i);
        for (int u = 0; u < l->n / l->unit; u++)
            fprintf(f, " + %.12g z%d_%d", KILO * (double)l->unit_bytes, i, u);
    }
    double fixed = (double)(w->scratch_bytes + m->runtime_bytes + m->margin_bytes);
    fprintf(f, " + %.12g a%d + %.12g g <= %.12g\n", KILO * (double)w->head_bytes, n, KILO * fixed,
            KILO * (double)budget);
    fprintf(f, "Binary\n g\n");
    for (int i = 0; i <= n; i++) fprintf(f, " a%d\n", i);
    for (int i = 0; i < n; i++)
        for (int u = 0; u < w->layers[i].n / w->layers[i].unit; u++) fprintf(f, " z%d_%d\n", i, u);
    fprintf(f, "End\n");
    return constant;
}

/* False: glpsol is not installed. */
static bool run_glpsol(const char *program, const char *result) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execlp("glpsol", "glpsol", "--lp", program, "--mipgap", "0", "--tmlim", "60", "-o", result,
               (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return false;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

/* "Status: INTEGER OPTIMAL" and "Objective:  obj = 12.3 (MINimum)" */
static double read_result(const char *path) {
    char line[256];
    double value = (double)NAN;
    bool optimal = false;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "Status:", 7) == 0) optimal = strstr(line, "INTEGER OPTIMAL");
        if (strncmp(line, "Objective:", 10) == 0) value = strtod(strchr(line, '=') + 1, NULL);
    }
    fclose(f);
    assert_true(optimal);
    return value;
}

static void test_glpsol(void **state) {
    (void)state;
    char program[] = "/tmp/place_XXXXXX", result[64];
    int fd = mkstemp(program);
    assert_true(fd >= 0);
    close(fd);
    snprintf(result, sizeof result, "%s.out", program);
    rng r;
    rng_seed(&r, 21);
    bool there = true;
    for (int round = 0; round < INSTANCES && there; round++) {
        place_workload w;
        place_plan placed;
        pi_error err = {.status = PI_OK};
        random_workload(&r, 2 + (int)(rng_u64(&r) % (LAYERS_MAX - 1)), UNITS_MAX, &w);
        place_machine m = random_machine(&r);
        uint64_t budget = random_budget(&r, &w, &m);
        FILE *f = fopen(program, "w");
        assert_non_null(f);
        double constant = write_program(f, &w, &m, budget);
        assert_int_equal(fclose(f), 0);
        there = run_glpsol(program, result);
        if (there) {
            double best = read_result(result) + constant;
            assert_int_equal(place_solve(&w, &m, budget, &placed, &err), PI_OK);
            double ours = MICRO * plain_seconds(&w, &m, &placed);
            if (!(fabs(ours - best) <= AGREE * best))
                fail_msg("round %d: %.9g microseconds, glpsol %.9g", round, ours, best);
            assert_true(MICRO * placed.bound <= best * (1 + AGREE));
            place_plan_free(&placed);
        }
        place_workload_free(&w);
    }
    unlink(program);
    unlink(result);
    if (!there) {
        print_message("SKIPPED: no glpsol (package glpk-utils): placements were not compared with "
                      "an exact solver's\n");
        skip();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_glpsol)};
    return cmocka_run_group_tests_name("place_glpsol", tests, NULL, NULL);
}
