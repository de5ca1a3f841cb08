/* cmd_chat.c: a conversation. For every answer, the chat template turns the whole conversation into
 * a prompt, and the session keeps the KV state of the longest common prefix. So after an answer
 * only the new message is evaluated, and after /edit or /regen only the changed part.
 *
 * Answers go to standard output, everything else to standard error. */
#include <signal.h>
#include <string.h>

#include "chat_history.h"
#include "chat_input.h"
#include "chat_view.h"
#include "cli.h"
#include "common_prefix.h"
#include "drafting.h"
#include "file.h"
#include "generate.h"
#include "json_writer.h"
#include "mem.h"
#include "os_file.h"
#include "os_terminal.h"
#include "powerinfer_chat.h"
#include "printable.h"
#include "rng.h"
#include "sampling.h"
#include "template_variables.h"
#include "terminal.h"

typedef struct chat {
    const cli_options *options;
    pi_model *model;
    pi_model_info info;
    pi_context *context;
    pi_session *session;
    pi_chat_template *template;
    char *variables; /* variables of the template, a JSON object; NULL: none */
    sampling sampling;
    drafting drafting;
    uint64_t seed; /* seed of the first answer; answer n uses seed + n - 1 */
    text_list stops;
    chat_input *input;
    chat_history history;
    int32_t *fed; /* [capacity of the session] tokens in the session */
    int32_t n_answers;
    /* statistics of the last answer */
    int32_t n_prompt, n_cached, n_generated;
    double prompt_tps, tps;
    size_t edited; /* number of the first message that the next one replaces, from 1; 0: none */
    bool unsaved;  /* some messages are not saved */
    bool left;     /* /exit, or the reader of standard output has gone */
    int signal;    /* ends the chat; 0: none. On a terminal SIGINT only ends an answer */
} chat;

/* ---- setting up ------------------------------------------------------------------------------ */

/* Renders a message with the variables, so that an error in them is reported before the first
 * message. */
static pi_status make_variables(chat *c, pi_error *err) {
    char *request = NULL, *prompt = NULL;
    size_t n_request = 0, n_prompt = 0;
    pi_error why = {.status = PI_OK};
    chat_history trial = {.n = 0};
    text_buffer text = {.data = NULL}, none = {.data = NULL};
    pi_status status = template_variables_create(c->options, &c->variables, err);
    if (status != PI_OK || !c->options->chat_template_kwargs) return status;
    status = text_append(&text, "a", 1, err);
    if (status == PI_OK) status = chat_history_add(&trial, "user", &text, &none, err);
    if (status == PI_OK)
        status = chat_history_request(&trial, c->variables, &request, &n_request, err);
    if (status == PI_OK && pi_chat_template_render(c->template, request, n_request, NULL, &prompt,
                                                   &n_prompt, &why) == PI_ERR_FORMAT)
        status = error_set(err, PI_ERR_ARG, "invalid value: --chat-template-kwargs: %s",
                           why.message);
    mem_free(request);
    mem_free(prompt);
    chat_history_free(&trial);
    text_free(&text);
    return status;
}

static pi_status make_template(chat *c, pi_error *err) {
    const cli_options *o = c->options;
    char *source = NULL;
    pi_chat_template_options t = {.name = o->chat_template};
    pi_status status = PI_OK;
    if (o->chat_template_file) {
        status = file_read_stream(o->chat_template_file, CLI_TEXT_MAX, &source, &t.n_source, err);
        t.source = source;
    }
    if (status == PI_OK) status = pi_chat_template_create(c->model, &t, &c->template, err);
    mem_free(source);
    if (status != PI_ERR_NOT_FOUND || o->chat_template_file) return status;
    pi_error why = *err;
    if (o->chat_template)
        return error_set(err, status, "%s: see powerinfer template --chat-template list",
                         why.message);
    cli_say_no_template(o);
    t = (pi_chat_template_options){.name = PI_CHAT_TEMPLATE_PLAIN};
    return pi_chat_template_create(c->model, &t, &c->template, err);
}

static pi_status read_system(chat *c, pi_error *err) {
    const cli_options *o = c->options;
    char *text = NULL;
    size_t n = 0;
    if (o->system_prompt) {
        text = mem_strdup(o->system_prompt);
        if (!text) return error_nomem(err, strlen(o->system_prompt), "system message");
        n = strlen(text);
        if (!o->no_escape) n = text_unescape(text, n);
    } else if (o->system_prompt_file) {
        pi_status status = file_read_stream(o->system_prompt_file, CLI_TEXT_MAX, &text, &n, err);
        if (status != PI_OK) return status;
        if (n && text[n - 1] == '\n') n--;
    }
    pi_status status = n ? chat_history_system(&c->history, text, n, err) : PI_OK;
    mem_free(text);
    return status;
}

static pi_status open_model(chat *c, pi_error *err) {
    const cli_options *o = c->options;
    pi_status status = cli_model_open(o, false, &c->model, err);
    if (status != PI_OK) return status;
    pi_model_get_info(c->model, &c->info);
    status = cli_refuse_encoder(c->model, err);
    if (status == PI_OK) status = make_template(c, err);
    if (status == PI_OK) status = make_variables(c, err);
    if (status == PI_OK) status = sampling_add_grammar(o, c->model, &c->sampling, err);
    if (status != PI_OK) return status;
    int64_t size = cli_context_size(o, &c->info);
    pi_context_options context = cli_context_options(o, (int32_t)size);
    context.n_logits = drafting_rows(o);
    c->fed = mem_calloc((size_t)size, sizeof *c->fed);
    if (!c->fed) return error_nomem(err, (size_t)size * sizeof *c->fed, "conversation");
    status = drafting_create(o, c->model, 1, (int32_t)size, &context, &c->drafting, err);
    if (status == PI_OK) status = pi_context_create(c->model, &context, &c->context, err);
    if (status == PI_OK) status = pi_session_create(c->context, (int32_t)size, &c->session, err);
    return status;
}

static const char *command_name(size_t i);

static pi_status set_up(chat *c, pi_error *err) {
    const cli_options *o = c->options;
    pi_status status = sampling_create(o, &c->sampling, err);
    if (status == PI_OK) status = drafting_check(o, err);
    if (status == PI_OK && o->reverse_prompts.count)
        status = text_list_create(&c->stops, o->reverse_prompts.values, o->reverse_prompts.count,
                                  !o->no_escape, err);
    if (status == PI_OK) status = read_system(c, err);
    if (status == PI_OK) status = open_model(c, err);
    if (status == PI_OK)
        status = chat_input_create(o->no_history ? NULL : o->history, command_name, &c->input, err);
    return status;
}

static void tear_down(chat *c) {
    chat_input_free(c->input);
    chat_history_free(&c->history);
    pi_session_destroy(c->session);
    pi_context_destroy(c->context);
    drafting_free(&c->drafting);
    pi_chat_template_free(c->template);
    mem_free(c->variables);
    sampling_free(&c->sampling);
    pi_model_close(c->model);
    text_list_free(&c->stops);
    mem_free(c->fed);
}

/* ---- one answer ------------------------------------------------------------------------------ */

/* Adds BOS unless the template has written it. */
static pi_status tokenize(const chat *c, const char *text, size_t n, int32_t **tokens,
                          size_t *n_tokens, pi_error *err) {
    pi_status status = text_tokenize(c->model, text, n, PI_TOKENIZE_SPECIAL, tokens, n_tokens, err);
    if (status != PI_OK || !c->info.add_bos) return status;
    if (*n_tokens && (*tokens)[0] == c->info.token_bos) return PI_OK;
    mem_free(*tokens);
    return text_tokenize(c->model, text, n, PI_TOKENIZE_SPECIAL | PI_TOKENIZE_BOS, tokens, n_tokens,
                         err);
}

/* Records the tokens in the session after an answer. A signal may have left the context cancelled;
 * evaluating one token clears that. */
static void note_fed(chat *c, const generation *g) {
    int32_t n = pi_session_length(c->session);
    for (int32_t i = c->n_cached; i < n; i++)
        c->fed[i] = i < c->n_prompt ? g->options.tokens[i] : g->tokens[i - c->n_prompt];
    if (g->signal == 0 || n == 0 || n == pi_session_capacity(c->session)) return;
    pi_input input = {.session = c->session, .tokens = c->fed, .n_tokens = 1};
    pi_forward(c->context, &input, 1, NULL);
    pi_session_rewind(c->session, n, NULL);
}

static void put_json(const chat *c, const chat_view *view, const generation *g) {
    json_writer w;
    json_begin_compact(&w, stdout);
    json_put_object(&w, NULL);
    json_put_text(&w, "role", "assistant");
    json_put_string(&w, "content", view->answer.data, view->answer.used);
    if (view->reasoning.used)
        json_put_string(&w, "reasoning", view->reasoning.data, view->reasoning.used);
    json_put_int(&w, "prompt_tokens", c->n_prompt);
    json_put_int(&w, "cached_tokens", c->n_cached);
    json_put_int(&w, "tokens", c->n_generated);
    json_put_text(&w, "stop", generation_stop_names[g->result.stop]);
    json_put_number(&w, "prompt_tps", c->prompt_tps);
    json_put_number(&w, "tps", c->tps);
    if (g->options.speculator) {
        json_put_int(&w, "draft_n", (int64_t)g->result.n_drafted);
        json_put_int(&w, "draft_n_accepted", (int64_t)g->result.n_accepted);
    }
    json_end_object(&w);
    fputc('\n', stdout);
}

static pi_status finish(chat *c, generation *g, chat_view *view, pi_error *err) {
    c->n_generated = (int32_t)g->n_tokens;
    c->prompt_tps = generation_prompt_tps(g);
    c->tps = generation_tps(g);
    chat_view_end(view);
    if (c->options->json) put_json(c, view, g);
    fflush(stdout);
    c->left = c->left || g->output_failed || ferror(stdout);
    if (g->result.session_full)
        cli_say(c->options, "the context is full: /clear starts over, a larger -c holds more");
    if (g->result.stop == PI_STOP_CANCELLED && !chat_input_is_terminal(c->input))
        c->signal = g->signal;
    if (view->status != PI_OK) return error_nomem(err, g->text.used, "answer");
    c->unsaved = true;
    return chat_history_add(&c->history, "assistant", &view->answer, &view->reasoning, err);
}

/* Whether the prompt ends with the user's text: then the answer continues it, and no token ends the
 * answer. A template that keeps only the end of a conversation may have dropped the beginning of
 * the text. */
static bool continues_text(chat *c, const char *prompt, size_t n_prompt) {
    const chat_message *m = chat_history_last(&c->history, "user");
    size_t n = m ? m->content.used : 0;
    while (n && strchr(" \n", m->content.data[n - 1])) n--;
    const size_t shown = n < n_prompt ? n : n_prompt;
    return n && memcmp(prompt + n_prompt - shown, m->content.data + n - shown, shown) == 0;
}

static pi_status generate(chat *c, const char *prompt, size_t n_prompt, const int32_t *tokens,
                          pi_error *err) {
    const cli_options *o = c->options;
    chat_view view = {.show = !o->json,
                      .wrap = {.out = stdout, .terminal = os_is_terminal(stdout)}};
    pi_sampler *sampler;
    c->sampling.options.seed = c->seed + (uint64_t)c->n_answers++;
    pi_status status = pi_sampler_create(c->model, &c->sampling.options, &sampler, err);
    if (status != PI_OK) return status;
    const pi_generate_options options = {.tokens = tokens,
                                         .n_tokens = c->n_prompt,
                                         .sampler = sampler,
                                         .max_tokens = (int32_t)o->predict,
                                         .speculator = c->drafting.speculator};
    generation g = {.context = c->context,
                    .session = c->session,
                    .options = options,
                    .stream = true,
                    .quiet = o->quiet,
                    .one_paragraph = continues_text(c, prompt, n_prompt),
                    .stops = &c->stops,
                    .write = chat_view_put,
                    .write_user = &view};
    chat_view_begin(&view, prompt, n_prompt);
    generation_begin(&g);
    status = pi_generate(g.context, g.session, &g.options, &g.result, err);
    status = generation_end(&g, status, err);
    note_fed(c, &g);
    if (g.signal && g.signal != SIGINT) c->signal = g.signal; /* also a closed window */
    if (status == PI_OK)
        status = finish(c, &g, &view, err);
    else
        chat_view_end(&view);
    chat_view_free(&view);
    generation_free(&g);
    pi_sampler_destroy(sampler);
    return status;
}

/* Generates the answer to the last message. */
static pi_status answer(chat *c, pi_error *err) {
    char *request = NULL, *prompt = NULL;
    int32_t *tokens = NULL;
    size_t n_request = 0, n_prompt = 0, n_tokens = 0;
    pi_status status = chat_history_request(&c->history, c->variables, &request, &n_request, err);
    if (status == PI_OK)
        status = pi_chat_template_render(c->template, request, n_request, NULL, &prompt, &n_prompt,
                                         err);
    if (status == PI_OK) status = tokenize(c, prompt, n_prompt, &tokens, &n_tokens, err);
    if (status == PI_OK && n_tokens == 0)
        status = error_set(err, PI_ERR_FORMAT, "the template rendered an empty prompt");
    int32_t room = pi_session_capacity(c->session);
    if (status == PI_OK && n_tokens > (size_t)room)
        status = error_set(err, PI_ERR_LIMIT,
                           "the conversation has %zu tokens but the context holds %d: /clear "
                           "starts over, a larger -c holds more",
                           n_tokens, (int)room);
    if (status == PI_OK) { /* keeps the longest common prefix to which the session can be rewound */
        int32_t n = common_prefix(c->fed, pi_session_length(c->session), tokens,
                                  (int32_t)n_tokens - 1);
        c->n_cached = pi_session_rewind_point(c->session, n);
        status = pi_session_rewind(c->session, c->n_cached, err);
    }
    if (status == PI_OK) {
        c->n_prompt = (int32_t)n_tokens;
        status = generate(c, prompt, n_prompt, tokens, err);
    }
    mem_free(tokens);
    pi_text_free(prompt);
    mem_free(request);
    return status;
}

/* Adds a message and its answer. After an error, the message is removed: on a terminal the
 * conversation continues. */
static pi_status say(chat *c, const text_buffer *message, pi_error *err) {
    size_t before = c->history.n;
    pi_status status = chat_history_add(&c->history, "user", message, NULL, err);
    if (status == PI_OK) status = answer(c, err);
    if (status != PI_OK) chat_history_cut(&c->history, before);
    return status;
}

/* ---- commands -------------------------------------------------------------------------------- */

static const char help[] =
    "/help           list the commands\n"
    "/clear          begin a new conversation; the system message stays\n"
    "/regen          answer the last message again\n"
    "/edit [TEXT]    replace the last message and answer it; without TEXT, edit it\n"
    "/system [TEXT]  set the system message; without TEXT, remove it\n"
    "/save FILE      save the conversation\n"
    "/load FILE      load a conversation\n"
    "/stats          tokens and speed of the last answer\n"
    "/bye            leave; also /exit and Ctrl-D\n"
    "\\ at the end of a line continues the message on the next one. Tab "
    "completes commands and files. Ctrl-C stops an answer or clears the "
    "line.\n";

/* Output of a command, also printed with -q. */
static void put_text(const char *text, size_t n) {
    word_wrap w = {.out = stderr, .terminal = os_is_terminal(stderr)};
    word_wrap_put(&w, text, n);
    word_wrap_flush(&w);
}

static pi_status do_help(chat *c, const char *text, pi_error *err) {
    (void)c, (void)text, (void)err;
    put_text(help, sizeof help - 1);
    return PI_OK;
}

static pi_status do_clear(chat *c, const char *text, pi_error *err) {
    (void)text, (void)err;
    bool system = chat_history_first(&c->history) > 0;
    chat_history_cut(&c->history, system);
    c->unsaved = false;
    cli_say(c->options, "new conversation%s", system ? " with the same system message" : "");
    return PI_OK;
}

/* Finds the number of the user's last message. */
static pi_status last_message(chat *c, size_t *at, pi_error *err) {
    const chat_message *m = chat_history_last(&c->history, "user");
    if (!m) return error_set(err, PI_ERR_FORMAT, "there is no message yet");
    *at = (size_t)(m - c->history.messages);
    return PI_OK;
}

static pi_status do_regen(chat *c, const char *text, pi_error *err) {
    size_t at = 0;
    (void)text;
    pi_status status = last_message(c, &at, err);
    if (status != PI_OK) return status;
    chat_history_cut(&c->history, at + 1);
    return answer(c, err);
}

static pi_status do_edit(chat *c, const char *text, pi_error *err) {
    size_t at = 0;
    pi_status status = last_message(c, &at, err);
    if (status != PI_OK) return status;
    if (*text) {
        text_buffer message = {.data = NULL};
        status = text_append(&message, text, strlen(text), err);
        chat_history_cut(&c->history, at);
        if (status == PI_OK) status = say(c, &message, err);
        text_free(&message);
        return status;
    }
    if (!chat_input_prefill(c->input, c->history.messages[at].content.data))
        return error_set(err, PI_ERR_FORMAT,
                         strchr(c->history.messages[at].content.data, '\n')
                             ? "the message has several lines: give the new text: /edit TEXT"
                             : "give the new text: /edit TEXT");
    c->edited = at + 1;
    return PI_OK;
}

static pi_status do_system(chat *c, const char *text, pi_error *err) {
    pi_status status = chat_history_system(&c->history, text, strlen(text), err);
    if (status == PI_OK)
        cli_say(c->options, *text ? "system message set" : "system message removed");
    return status;
}

/* Path of the file that `text` names: expands ~ and drops the blanks that completion adds. */
static pi_status read_path(const char *text, char *path, size_t n_path, const char *usage,
                           pi_error *err) {
    size_t n = strlen(text), n_user = *text == '~' ? strcspn(text, "/\\ ") : 0;
    char user[256], home[OS_PATH_MAX];
    while (n && text[n - 1] == ' ') n--;
    if (n == 0) return error_set(err, PI_ERR_FORMAT, "give the file: %s", usage);
    snprintf(user, sizeof user, "%.*s", (int)n_user, text);
    bool found = n_user && n_user < sizeof user && os_path_home(user, home);
    int length = snprintf(path, n_path, "%s%.*s", found ? home : "", (int)(found ? n - n_user : n),
                          found ? text + n_user : text);
    if ((size_t)length < n_path) return PI_OK;
    return error_set(err, PI_ERR_LIMIT, "path is too long: %.200s...: give a shorter one", text);
}

static pi_status do_save(chat *c, const char *text, pi_error *err) {
    char path[OS_PATH_MAX];
    pi_status status = read_path(text, path, sizeof path, "/save FILE", err);
    if (status == PI_OK) status = chat_history_save(&c->history, path, err);
    if (status != PI_OK) return status;
    c->unsaved = false;
    cli_say(c->options, "saved %s: %zu messages", path, c->history.n);
    return PI_OK;
}

static pi_status do_load(chat *c, const char *text, pi_error *err) {
    char path[OS_PATH_MAX];
    pi_status status = read_path(text, path, sizeof path, "/load FILE", err);
    if (status == PI_OK) status = chat_history_load(&c->history, path, err);
    if (status != PI_OK) return status;
    c->unsaved = false;
    cli_say(c->options, "loaded %s: %zu messages", path, c->history.n);
    return PI_OK;
}

static pi_status do_stats(chat *c, const char *text, pi_error *err) {
    (void)text, (void)err;
    char stats[256];
    int n = snprintf(stats, sizeof stats,
                     "context: %d of %d tokens\n"
                     "prompt:  %d tokens (%d from the cache), %.1f tokens/s\n"
                     "answer:  %d tokens, %.1f tokens/s\n",
                     (int)pi_session_length(c->session), (int)pi_session_capacity(c->session),
                     (int)c->n_prompt, (int)c->n_cached, c->prompt_tps, (int)c->n_generated,
                     c->tps);
    put_text(stats, (size_t)n);
    return PI_OK;
}

static pi_status do_exit(chat *c, const char *text, pi_error *err) {
    (void)text, (void)err;
    c->left = true;
    return PI_OK;
}

/* Sorted, as Tab lists them. */
static const struct {
    const char *name;
    pi_status (*run)(chat *c, const char *text, pi_error *err);
} commands[] = {{"bye", do_exit},  {"clear", do_clear}, {"edit", do_edit},    {"exit", do_exit},
                {"help", do_help}, {"load", do_load},   {"quit", do_exit},    {"regen", do_regen},
                {"save", do_save}, {"stats", do_stats}, {"system", do_system}};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const char *command_name(size_t i) {
    return i < N_COMMANDS ? commands[i].name : NULL;
}

static pi_status run_command(chat *c, const char *line, pi_error *err) {
    size_t n = strcspn(line, " \n");
    const char *text = line + n + strspn(line + n, " \n");
    const char *names[N_COMMANDS];
    char word[32];
    snprintf(word, sizeof word, "%.*s", n < sizeof word ? (int)n : 0, line);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(word, names[i]) == 0) return commands[i].run(c, text, err);
    }
    const char *closest = options_closest(word, names, N_COMMANDS);
    if (closest)
        return error_set(err, PI_ERR_FORMAT, "no such command: /%s: did you mean /%s?", word,
                         closest);
    return error_set(err, PI_ERR_FORMAT, "no such command: /%s: see /help", word);
}

/* ---- the conversation ------------------------------------------------------------------------ */

static pi_status take_line(chat *c, const text_buffer *line, pi_error *err) {
    size_t edited = chat_input_was_cleared(c->input) ? 0 : c->edited;
    c->edited = 0;
    if (line->used == 0) return PI_OK;
    if (edited && line->data[0] != '/') chat_history_cut(&c->history, edited - 1);
    return line->data[0] == '/' ? run_command(c, line->data + 1, err) : say(c, line, err);
}

static pi_status first_message(chat *c, pi_error *err) {
    const cli_options *o = c->options;
    text_buffer message = {.data = NULL};
    pi_status status = text_append(&message, o->prompt, strlen(o->prompt), err);
    if (status == PI_OK && !o->no_escape) {
        message.used = text_unescape(message.data, message.used);
        message.data[message.used] = '\0';
    }
    if (status == PI_OK) status = say(c, &message, err);
    text_free(&message);
    return status;
}

static void introduce(const chat *c) {
    const cli_options *o = c->options;
    char path[OS_PATH_MAX], shown[256], rest[128];
    const char *name = cli_model_name(o, &c->info, path, sizeof path);
    word_wrap w = {.out = stderr, .terminal = os_is_terminal(stderr)};
    if (o->quiet) return;
    int n = snprintf(rest, sizeof rest, ": %.20s, %.20s, context of %d tokens\n",
                     c->info.architecture, c->info.type, (int)pi_session_capacity(c->session));
    fputs(terminal_style(stderr, TERMINAL_BOLD), stderr);
    word_wrap_put(&w, shown, printable_copy(shown, sizeof shown, name, strlen(name)));
    word_wrap_flush(&w);
    fputs(terminal_style(stderr, TERMINAL_PLAIN), stderr);
    word_wrap_put(&w, rest, (size_t)n);
    if (chat_input_is_terminal(c->input) && !o->prompt)
        cli_say(o, "/help lists the commands; Ctrl-D leaves");
}

/* Offers to save an unsaved conversation before the chat ends, on a terminal. */
static void offer_save(chat *c) {
    const cli_options *o = c->options;
    text_buffer line = {.data = NULL};
    pi_error err;
    bool asks = chat_input_is_terminal(c->input) && !o->json && !o->single_turn;
    while (asks && c->unsaved &&
           chat_input_ask(c->input, "save to file (Enter: do not save): ", &line) == CHAT_LINE &&
           line.used) {
        if (do_save(c, line.data, &err) != PI_OK) cli_failed(&err);
    }
    text_free(&line);
}

/* Reads the next message or command; false at the end. After Ctrl-C on an empty line it asks
 * whether to leave; a second Ctrl-C confirms. */
static bool read_message(chat *c, text_buffer *line) {
    chat_event event = chat_input_read(c->input, line);
    while (event == CHAT_INTERRUPT) {
        event = chat_input_ask(c->input, "leave? [y/n] ", line);
        if (event != CHAT_LINE || (line->used && strchr("yY", line->data[0]))) return false;
        event = chat_input_read(c->input, line);
    }
    return event == CHAT_LINE;
}

static int converse(chat *c) {
    const cli_options *o = c->options;
    bool terminal = chat_input_is_terminal(c->input);
    text_buffer line = {.data = NULL};
    pi_error err = {.status = PI_OK};
    pi_status status = PI_OK;
    bool only = o->prompt && (o->single_turn || !terminal);
    introduce(c);
    if (o->prompt) status = first_message(c, &err);
    while (!only && !c->left && !c->signal && (status == PI_OK || terminal)) {
        if (status != PI_OK) cli_failed(&err);
        status = PI_OK;
        if (!read_message(c, &line)) break;
        int32_t before = c->n_answers;
        status = take_line(c, &line, &err);
        if (o->single_turn && c->n_answers > before) break;
    }
    text_free(&line);
    if (!ferror(stdout) && !c->signal) offer_save(c);
    if (status != PI_OK) {
        err.status = status == PI_ERR_ARG ? PI_ERR_FORMAT : status; /* a template's refusal */
        return cli_failed(&err);
    }
    if (c->signal) return EXIT_SIGNAL + c->signal;
    return EXIT_DONE;
}

int cmd_chat(const cli_options *o) {
    chat c = {.options = o};
    pi_error err = {.status = PI_OK};
    if (o->chat_template && o->chat_template_file)
        return cli_wrong("two templates: --chat-template and --chat-template-file: give one of "
                         "them");
    if (options_typed(o, &o->system_prompt) && options_typed(o, &o->system_prompt_file))
        return cli_wrong("two system messages: -sys and -sysf: give one of them");
    for (int i = 0; i < o->reverse_prompts.count; i++) {
        if (!*o->reverse_prompts.values[i])
            return cli_wrong("the text is empty: --reverse-prompt: give the text to stop at");
    }
    pi_status status = set_up(&c, &err);
    c.seed = c.sampling.options.seed == UINT64_MAX ? rng_entropy() >> 1 : c.sampling.options.seed;
    int result = status == PI_OK ? converse(&c) : cli_failed(&err);
    tear_down(&c);
    return result;
}
