/* cmd_inspect.c: what is in a model file, and what this machine can compute on. */
#include <limits.h>

#include "cli.h"
#include "cpu_features.h"
#include "json_writer.h"
#include "pool.h"

typedef struct feature {
    const char *name;
    bool present;
} feature;

static void print_devices(bool json) {
    const cpu_features *f = cpu_features_get();
    const feature features[] = {
        {"avx2", f->avx2},
        {"fma", f->fma},
        {"f16c", f->f16c},
        {"bmi2", f->bmi2},
        {"avx_vnni", f->avx_vnni},
        {"avx512", f->avx512},
        {"avx512_vnni", f->avx512_vnni},
        {"neon", f->neon},
        {"avx512_bf16", f->avx512_bf16},
        {"dotprod", f->dotprod},
        {"i8mm", f->i8mm},
    };
    const size_t n = sizeof features / sizeof features[0];
    if (!json) {
        printf("cpu: %s, %d physical cores,", cpu_model_name(), cpu_count_physical());
        for (size_t i = 0; i < n; i++) {
            if (features[i].present) printf(" %s", features[i].name);
        }
        putchar('\n');
        return;
    }
    json_writer w;
    json_begin(&w, stdout);
    json_put_object(&w, NULL);
    json_put_array(&w, "devices");
    json_put_object(&w, NULL);
    json_put_text(&w, "device", "cpu");
    json_put_text(&w, "name", cpu_model_name());
    json_put_int(&w, "cores", cpu_count_physical());
    json_put_array(&w, "features");
    for (size_t i = 0; i < n; i++) {
        if (features[i].present) json_put_text(&w, NULL, features[i].name);
    }
    json_end_array(&w);
    json_end_object(&w);
    json_end_array(&w);
    json_end_object(&w);
}

int cmd_inspect(const cli_options *o) {
    if (o->devices) {
        print_devices(o->json);
        return EXIT_DONE;
    }
    if (o->n_positionals && options_typed(o, &o->model)) {
        return cli_wrong("two files: %.200s and -m %.200s: give one of them", o->positionals[0],
                         o->model);
    }
    char path[PATH_MAX];
    pi_error err = {.status = PI_OK};
    cli_options named = *o;
    if (o->n_positionals) named.model = o->positionals[0];
    pi_inspect_options options = {
        .json = o->json, .verbose = o->verbose, .plan = o->plan, .svg = o->svg};
    pi_status status = cli_model_path(&named, path, sizeof path, &err);
    if (status == PI_OK) status = pi_inspect(path, &options, stdout, &err);
    return status == PI_OK ? EXIT_DONE : cli_failed(&err);
}
