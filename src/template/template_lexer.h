/* template_lexer.h: splits a template's source into tokens: text between tags, and the contents of
 * tags. Handles whitespace control (-, +, trim_blocks, lstrip_blocks), so the parser sees text
 * exactly as it will be written. */
#ifndef TEMPLATE_LEXER_H
#define TEMPLATE_LEXER_H

#include "template_value.h"

typedef enum tpl_token_type {
    TOKEN_END,
    TOKEN_DATA,        /* text: s, n */
    TOKEN_PRINT_BEGIN, /* {{ */
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN, /* {% */
    TOKEN_BLOCK_END,
    TOKEN_NAME,   /* s, n */
    TOKEN_STRING, /* s, n: decoded */
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR /* op: the character, or one of tpl_operator */
} tpl_token_type;

typedef enum tpl_operator {
    OP_EQ = 256,
    OP_NE,
    OP_GE,
    OP_LE,
    OP_FLOORDIV,
    OP_POW,
    OP_IN, /* comparisons that are not single tokens */
    OP_NOT_IN
} tpl_operator;

typedef struct tpl_token {
    tpl_token_type type;
    int op, line;
    const char *s;
    size_t n;
    int64_t integer;
    double real;
} tpl_token;

typedef struct tpl_tokens {
    tpl_token *items; /* [n], the last one is TOKEN_END */
    size_t n, capacity;
} tpl_tokens;

/* `source` is valid UTF-8 and outlives the tokens, which are allocated in t's arena. */
void tpl_tokenize(tpl *t, const char *source, size_t n, tpl_tokens *out);

#endif
