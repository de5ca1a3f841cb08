/* chat_view.c: finds the delimiters of reasoning ("marks") in a stream of text. A mark may span
 * pieces, so text that may be the beginning of a mark is held back. Reasoning comes first: a mark
 * after other text is text. */
#include "chat_view.h"

#include <string.h>

#include "terminal.h"

typedef struct reasoning_marks {
    const char *open, *close;
} reasoning_marks;

static const reasoning_marks marks[] = {{"<think>", "</think>"},
                                        {"<thinking>", "</thinking>"},
                                        {"<thought>", "</thought>"},
                                        {"<reasoning>", "</reasoning>"},
                                        {"<|START_THINKING|>", "<|END_THINKING|>"},
                                        {"[THINK]", "[/THINK]"}};
enum { N_MARKS = sizeof marks / sizeof *marks };

static bool is_blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!text[i] || !strchr(" \t\r\n", text[i])) return false;
    }
    return true;
}

static void dim(chat_view *v, bool on) {
    if (v->dimmed == on || !v->show) return;
    word_wrap_flush(&v->wrap);
    fputs(terminal_style(v->wrap.out, on ? TERMINAL_DIM : TERMINAL_PLAIN), v->wrap.out);
    v->dimmed = on;
}

static void keep(chat_view *v, text_buffer *to, const char *text, size_t n) {
    if (v->status == PI_OK) v->status = text_append(to, text, n, NULL);
}

/* Adds text without marks. Newlines around the reasoning belong to neither reasoning nor answer. */
static void emit(chat_view *v, const char *text, size_t n) {
    text_buffer *to = v->mark >= 0 ? &v->reasoning : &v->answer;
    while (n && !to->used && (*text == '\n' || *text == '\r') && v->began) {
        text++;
        n--;
    }
    if (n == 0) return;
    keep(v, to, text, n);
    dim(v, v->mark >= 0);
    if (v->show) word_wrap_put(&v->wrap, text, n);
}

/* Returns the first mark in text[n], its index and the bytes before it; NULL: none. */
static const char *find_mark(const chat_view *v, const char *text, size_t n, size_t *before,
                             int *which) {
    const char *found = NULL;
    for (int i = 0; i < N_MARKS; i++) {
        const char *mark = v->mark >= 0 ? marks[v->mark].close : marks[i].open;
        size_t n_mark = strlen(mark);
        for (size_t at = 0; at + n_mark <= n; at++) {
            if (memcmp(text + at, mark, n_mark) != 0) continue;
            if (found && at >= *before) break;
            found = mark;
            *before = at;
            *which = v->mark >= 0 ? -1 : i;
            break;
        }
    }
    return found;
}

/* Length of the longest suffix of text[n] that may be the beginning of a mark. */
static size_t may_begin(const chat_view *v, const char *text, size_t n) {
    size_t longest = 0;
    for (int i = 0; i < N_MARKS; i++) {
        const char *mark = v->mark >= 0 ? marks[v->mark].close : marks[i].open;
        for (size_t k = strlen(mark) - 1; k > longest; k--) {
            if (k <= n && memcmp(text + n - k, mark, k) == 0) longest = k;
        }
    }
    return longest;
}

void chat_view_begin(chat_view *v, const char *prompt, size_t n_prompt) {
    v->mark = -1;
    keep(v, &v->answer, NULL, 0);
    keep(v, &v->reasoning, NULL, 0);
    while (n_prompt && strchr(" \n", prompt[n_prompt - 1])) n_prompt--;
    for (int i = 0; i < N_MARKS; i++) {
        size_t n = strlen(marks[i].open);
        if (n_prompt >= n && memcmp(prompt + n_prompt - n, marks[i].open, n) == 0) v->mark = i;
    }
    v->began = v->mark >= 0;
}

void chat_view_put(void *user, const char *text, size_t n) {
    chat_view *v = user;
    keep(v, &v->held, text, n);
    if (v->status != PI_OK) return;
    const char *at = v->held.data;
    size_t left = v->held.used;
    for (;;) {
        size_t before = 0;
        int which = -1;
        bool looks = v->mark >= 0 ||
                     (is_blank(v->answer.data, v->answer.used) && !v->reasoning.used);
        const char *mark = looks ? find_mark(v, at, left, &before, &which) : NULL;
        if (mark && v->mark < 0 && !is_blank(at, before)) mark = NULL;
        if (!mark) {
            size_t hold = looks ? may_begin(v, at, left) : 0;
            emit(v, at, left - hold);
            memmove(v->held.data, at + left - hold, hold);
            v->held.used = hold;
            return;
        }
        if (v->mark >= 0) emit(v, at, before);
        v->began = true;
        v->mark = which;
        at += before + strlen(mark);
        left -= before + strlen(mark);
        if (v->mark < 0 && v->show && v->reasoning.used) {
            dim(v, false);
            word_wrap_put(&v->wrap, "\n\n", 2);
        }
    }
}

void chat_view_end(chat_view *v) {
    if (v->held.used) emit(v, v->held.data, v->held.used);
    v->held.used = 0;
    dim(v, false);
    if (v->show && v->answer.used + v->reasoning.used) {
        const text_buffer *last = v->mark >= 0 ? &v->reasoning : &v->answer;
        if (!last->used || last->data[last->used - 1] != '\n') word_wrap_put(&v->wrap, "\n", 1);
        word_wrap_flush(&v->wrap);
    }
    while (v->answer.used && strchr(" \n", v->answer.data[v->answer.used - 1])) v->answer.used--;
}

void chat_view_free(chat_view *v) {
    text_free(&v->answer);
    text_free(&v->reasoning);
    text_free(&v->held);
}
