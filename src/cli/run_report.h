/* run_report.h: the report of run: settings, context, summary, JSON. */
#ifndef CLI_RUN_REPORT_H
#define CLI_RUN_REPORT_H

#include "generate.h"

typedef struct run_report {
    const cli_options *options;
    const pi_model_info *info;
    const pi_context *context;
    const pi_session *session;
    const pi_sampler *sampler;
    int32_t n_ctx; /* tokens of the context; the session may be smaller, see cmd_run.c */
    int32_t n_prompt;
    double load_seconds;
} run_report;

/* Before the text: warnings about the context; with -v, the settings. */
void run_report_begin(const run_report *r);
/* After the text: a row per fact, at most 80 columns wide. */
void run_report_end(const run_report *r, const generation *g);
void run_report_json(const cli_options *o, const generation *g, const pi_context *context);

#endif
