/* hf_pretokenizer.c: a pre_tokenizer is a list of steps; each step splits the pieces of the
 * previous step. This file reduces it to the list of its patterns and compares the list with the
 * patterns of the models behind each known name. The last step, ByteLevel, only maps bytes unless
 * use_regex is on, which means GPT-2's pattern. */
#include "hf_pretokenizer.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_STEPS = 8 };

#define GPT2_WORDS   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
#define GPT2         GPT2_WORDS "|\\s+(?!\\S)|\\s+"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PUNCTUATION  "(punctuation)" /* the step without a pattern */
#define SINGLE_DIGIT "\\p{N}"
#define CJK          "[一-龥ࠀ-一가-퟿]+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NOT_WORD     "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED(suffix)                                                                              \
    NOT_WORD UPPER "*" LOWER "+" suffix "|" NOT_WORD UPPER "+" LOWER "*" suffix "|"

/* A pattern that ends with this mark matches all patterns with this prefix: the lists of letters
 * are long, and no other model has them. */
#define AND_SO_ON "…"

static const struct {
    const char *name;
    const char *steps[MAX_STEPS];
} known[] = {
    {"gpt-2", {GPT2}},
    {"starcoder", {SINGLE_DIGIT, GPT2}},
    {"falcon", {PUNCTUATION, GPT2, "[0-9][0-9][0-9]"}},
    {"llama-bpe",
     {CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"qwen2", {CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"qwen35",
     {CONTRACTIONS "|" NOT_WORD
                   "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"jais-2",
     {CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
                   "\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|"
                   "\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}},
    {"exaone-moe",
     {CONTRACTIONS "|" NOT_WORD
                   "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|"
                   "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"tiny_aya",
     {"\\d{1,3}(?=(?:\\d{3})*\\b)",
      CASED(CONTRACTIONS "?") "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES}},
    {"tekken", {CASED("") "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES}},
    {"gpt-4o", {CASED(CONTRACTIONS "?") "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES}},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?[A-Za-zµÀ-ÖØ-öø-ƺ" AND_SO_ON, "\\s?[!-/:-~" AND_SO_ON, "\\s+$", CJK,
      SINGLE_DIGIT}},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, SINGLE_DIGIT}},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./"
      ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{"
      "M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES}},
    {"bailingmoe",
     {"'(?i:[sdmt]|ll|ve|re)|" NOT_WORD
      "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"seed-coder",
     {CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
};

typedef struct steps {
    const char *patterns[MAX_STEPS]; /* unused entries are NULL; borrowed from the document */
    int n;
    bool unknown; /* a step of an unknown kind */
} steps;

static void add_step(steps *s, const char *pattern) {
    if (s->n == MAX_STEPS || !pattern) {
        s->unknown = true;
        return;
    }
    s->patterns[s->n++] = pattern;
}

static const char *text_of(const json_node *object, const char *key) {
    const char *text;
    size_t n;
    return json_as_string(json_get(object, key), &text, &n) ? text : NULL;
}

static bool flag_of(const json_node *object, const char *key, bool fallback) {
    json_as_bool(json_get(object, key), &fallback);
    return fallback;
}

/* Adds a split whose matches and gaps are both pieces ("Isolated"). A pattern that matches
 * everything may also be written as "remove the text that does not match". */
static void add_split(steps *s, const json_node *node) {
    const char *behavior = text_of(node, "behavior");
    bool invert = flag_of(node, "invert", false);
    bool cuts = behavior && ((strcmp(behavior, "Isolated") == 0 && !invert) ||
                             (strcmp(behavior, "Removed") == 0 && invert));
    add_step(s, cuts ? text_of(json_get(node, "pattern"), "Regex") : NULL);
}

static void add_node(steps *s, const json_node *node, int depth) {
    const char *type = text_of(node, "type");
    if (!type || depth > 1) {
        s->unknown = true;
    } else if (strcmp(type, "Sequence") == 0) {
        const json_node *list = json_get(node, "pretokenizers");
        for (size_t i = 0; i < json_count(list) && !s->unknown; i++)
            add_node(s, json_at(list, i), depth + 1);
    } else if (strcmp(type, "ByteLevel") == 0) {
        if (flag_of(node, "use_regex", true)) add_step(s, GPT2);
    } else if (strcmp(type, "Digits") == 0) {
        add_step(s, flag_of(node, "individual_digits", false) ? SINGLE_DIGIT : "\\p{N}+");
    } else if (strcmp(type, "Punctuation") == 0) {
        add_step(s, PUNCTUATION);
    } else if (strcmp(type, "Split") == 0) {
        add_split(s, node);
    } else {
        s->unknown = true;
    }
}

/* Whether `pattern` equals `expected`, or differs only in the spelling of the contractions. */
static bool pattern_is(const char *pattern, const char *expected) {
    static const char spelled[] = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
    static const char bailing[] = "(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])";
    while (*expected) {
        if (strcmp(expected, AND_SO_ON) == 0) return true;
        if (strncmp(expected, CONTRACTIONS, sizeof CONTRACTIONS - 1) == 0 &&
            strncmp(pattern, spelled, sizeof spelled - 1) == 0) {
            expected += sizeof CONTRACTIONS - 1;
            pattern += sizeof spelled - 1;
        } else if (strncmp(expected, "(?i:[sdmt]|ll|ve|re)", 20) == 0 &&
                   strncmp(pattern, bailing, sizeof bailing - 1) == 0) {
            expected += 20;
            pattern += sizeof bailing - 1;
        } else if (*expected++ != *pattern++) {
            return false;
        }
    }
    return *pattern == 0;
}

static bool steps_are(const steps *s, const char *const expected[MAX_STEPS]) {
    for (int i = 0; i < MAX_STEPS; i++) {
        if (!expected[i] || i >= s->n) return !expected[i] && i >= s->n;
        if (!pattern_is(s->patterns[i], expected[i])) return false;
    }
    return true;
}

pi_status hf_pretokenizer_name(const json_node *node, const char *path, const char **name,
                               pi_error *err) {
    steps s = {.n = 0};
    add_node(&s, node, 0);
    for (size_t i = 0; i < sizeof known / sizeof known[0] && !s.unknown; i++) {
        if (!steps_are(&s, known[i].steps)) continue;
        *name = known[i].name;
        return PI_OK;
    }
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "unknown pre-tokenizer: %s: %d steps, the first cuts by %.200s", path, s.n,
                     s.n > 0 ? s.patterns[0] : "something other than a pattern");
}
