/* cli.h: the commands, and what they share: opening the model, options of contexts. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cli_message.h"
#include "options.h"
#include "powerinfer.h"

enum { CLI_CONTEXT_DEFAULT = 8192 }; /* tokens; longer contexts only with -c */

typedef struct command {
    const char *name;
    uint32_t bit;       /* command_bit */
    const char *usage;  /* after "powerinfer " */
    const char *title;  /* one line for the list of commands */
    const char *detail; /* paragraph of the command's help; NULL: none */
    int max_positionals;
    bool model_argument;              /* the only positional argument is the model, as with -m */
    int (*run)(const cli_options *o); /* returns an exit status */
} command;

int cmd_run(const cli_options *o);
int cmd_embed(const cli_options *o);
int cmd_eval(const cli_options *o);
int cmd_tokenize(const cli_options *o);
int cmd_perplexity(const cli_options *o);
int cmd_bench(const cli_options *o);
int cmd_inspect(const cli_options *o);
int cmd_convert(const cli_options *o);
int cmd_synth(const cli_options *o);
int cmd_quantize(const cli_options *o);
int cmd_imatrix(const cli_options *o);
int cmd_prepare(const cli_options *o);
int cmd_tune(const cli_options *o);
int cmd_place(const cli_options *o);
int cmd_template(const cli_options *o);
int cmd_chat(const cli_options *o);
int cmd_serve(const cli_options *o);
int cmd_completion(const cli_options *o);

/* help.c */
void help_program(FILE *out, const command *commands, size_t n);
void help_command(FILE *out, const command *c);
/* For man pages: an option's description with its choices and default, the title of a group of
 * options, two examples ("run -m ..."; bit 0: the program's). */
enum { HELP_TEXT_MAX = 640, HELP_EXAMPLES = 2 };
void help_option_text(const option *o, char *buf, size_t n_buf);
const char *help_group_title(uint32_t bit, option_group group);
const char *const *help_examples(uint32_t bit);

/* main.c: the table of commands. */
const command *cli_commands(size_t *n);

/* Path of the model: -m, a download, or the bundled model. */
pi_status cli_model_path(const cli_options *o, char *buf, size_t n_buf, pi_error *err);
/* The model's name in its metadata, otherwise its file name, which is stored in buf. */
const char *cli_model_name(const cli_options *o, const pi_model_info *info, char *buf,
                           size_t n_buf);
/* PI_ERR_FORMAT when `path` is a Hugging Face model; the message has the command line that converts
 * it. */
pi_status cli_refuse_hf(const char *path, pi_error *err);
/* Path of a file that comes with the program; false: it is missing. */
bool cli_bundled_path(const char *name, char *buf, size_t n_buf);
/* PI_ERR_UNSUPPORTED when the model generates no text; the message has the command to use. */
pi_status cli_refuse_encoder(const pi_model *model, pi_error *err);
pi_status cli_model_open(const cli_options *o, bool vocab_only, pi_model **out, pi_error *err);
/* How a model is opened, beyond its options. */
typedef struct cli_opening {
    const float *scales;  /* of the adapters, in their order; NULL: those of the options */
    pi_progress progress; /* NULL: none */
    void *user;           /* of progress */
    pi_cluster *receive;  /* NULL, or the model comes from rank 0, and is kept in `folder` */
    const char *folder;   /* NULL: in memory */
} cli_opening;
pi_status cli_model_open_as(const cli_options *o, const cli_opening *how, pi_model **out,
                            pi_error *err);
/* Context size in tokens: -c, or the model's training context, at most CLI_CONTEXT_DEFAULT. */
int64_t cli_context_size(const cli_options *o, const pi_model_info *info);
int32_t cli_max_batch(const cli_options *o); /* pi_context_options.max_batch */
/* n_ctx: positions of all sessions together; 0: unknown. */
pi_context_options cli_context_options(const cli_options *o, int32_t n_ctx);
/* --vram-budget in bytes; PI_VRAM_FREE when it is not given. */
uint64_t cli_vram_budget(const cli_options *o);
/* Number of first layers whose experts stay on the CPU. */
int32_t cli_cpu_experts(const cli_options *o);
/* Device numbers of --device, and the proportions of --tensor-split. */
void cli_devices(const cli_options *o, int32_t *n, int32_t devices[PI_MAX_DEVICES],
                 float shares[PI_MAX_DEVICES]);
/* --ram-budget in bytes; PI_RAM_FREE when it is not given. */
uint64_t cli_ram_budget(const cli_options *o);
/* Options of a synthetic model: --shape, --type, --density, ... */
pi_synth_options cli_synth_options(const cli_options *o);

#endif
