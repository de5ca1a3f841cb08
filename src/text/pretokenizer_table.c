/* pretokenizer_table.c: the patterns of each pre-tokenizer name.
 *
 * A name's patterns apply one after the other, each to the pieces that the one before left; what a
 * pattern matches is a piece, and so is the text between two matches. They are matched with PCRE2's
 * UTF and UCP options. Four forms differ from what the vocabularies' authors wrote; they cut the
 * same pieces:
 *   - a letter that is not a-z is the class [^\P{L}a-z] rather than a group with a look-ahead, so
 *     that repeating it needs no stack and no backtracking through groups;
 *   - blanks at the end of a piece are (?<!\s)\s++\z rather than \s+$, which would be quadratic
 *     in a long run of blanks elsewhere;
 *   - where a range of ideographs or punctuation would include blanks, the blanks are left out: a
 *     blank is never anything else;
 *   - in deepseek-v3, '~' is neither punctuation nor symbol: the reference implementation's symbol
 *     class has no tilde, and ids must agree with it. Classes without it are written as the
 *     complement of the other categories. */
#include "pretokenizer.h"

static const char *const llama_bpe_patterns[] = {
    ("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{"
     "L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
};
static const char *const deepseek_llm_patterns[] = {
    "[\\r\\n]",
    ("\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁ"
     "Ҋ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-"
     "ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-"
     "Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎ"
     "ↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆ"
     "ﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
     "]+"),
    "\\s?[!-/:-~！-／：-～‘-‟、-。]+",
    "(?<!\\s)\\s++\\z",
    ("[一-龥\\x{800}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}"
     "\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{4E00}가-\\x{D7FF}]+"),
    "\\p{N}+",
};
static const char *const deepseek_v3_patterns[] = {
    "\\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|(?:(?![\\r\\n])[~\\p{M}\\p{N}"
     "\\p{Z}\\p{C}])?[\\p{L}\\p{M}]+| ?[^~\\p{L}\\p{M}\\p{N}\\p{Z}\\p{C}]+[\\r\\n]*|\\s*["
     "\\r\\n]+|\\s+(?!\\S)|\\s+"),
};
static const char *const deepseek_coder_patterns[] = {
    "[\\r\\n]",
    "\\s?\\p{L}+",
    "\\s?\\p{P}+",
    ("[一-龥\\x{800}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}"
     "\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{4E00}가-\\x{D7FF}]+"),
    "\\p{N}",
};
static const char *const falcon_patterns[] = {
    "[\\p{P}\\$\\+<=>\\^~\\|`]+",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
    "[0-9][0-9][0-9]",
};
static const char *const starcoder_patterns[] = {
    "\\p{N}",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
};
static const char *const gpt_2_patterns[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
};
static const char *const qwen2_patterns[] = {
    ("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{"
     "L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
};
static const char *const qwen35_patterns[] = {
    ("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?[\\p"
     "{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\"
     "s+"),
};
static const char *const tekken_patterns[] = {
    ("[^\\r\\n\\p{L}\\p{N}]?[^\\P{L}a-z]*[^\\P{L}A-Z]+|[^\\r\\n\\p{L}\\p{N}]?[^\\P{L}a-z]+"
     "[^\\P{L}A-Z]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
};
static const char *const gpt_4o_patterns[] = {
    ("[^\\r\\n\\p{L}\\p{N}]?[^\\P{L}a-z]*[^\\P{L}A-Z]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'"
     "[mM]|'[lL][lL]|'[dD])?|[^\\r\\n\\p{L}\\p{N}]?[^\\P{L}a-z]+[^\\P{L}A-Z]*(?:'[sS]|'[tT"
     "]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r"
     "\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
};
static const char *const bailingmoe_patterns[] = {
    ("'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^"
     "\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"),
};
static const char *const seed_coder_patterns[] = {
    ("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{"
     "L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
};
static const char *const unnamed_patterns[] = {
    "[\\p{P}\\$\\+<=>\\^~\\|]+",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
    "\\p{N}+",
    "[0-9][0-9][0-9]",
};

#define PATTERNS(name) name##_patterns, (int)(sizeof name##_patterns / sizeof name##_patterns[0])

const char pretokenizer_default_name[] = "default";

const pretokenizer_row pretokenizer_rows[] = {
    {"default", PATTERNS(unnamed), false, false},
    {"llama-bpe", PATTERNS(llama_bpe), true, true},
    {"llama3", PATTERNS(llama_bpe), true, true},
    {"llama-v3", PATTERNS(llama_bpe), true, true},
    {"falcon3", PATTERNS(llama_bpe), true, true},
    {"dbrx", PATTERNS(llama_bpe), false, false},
    {"smaug-bpe", PATTERNS(llama_bpe), false, false},
    {"deepseek-llm", PATTERNS(deepseek_llm), false, false},
    {"deepseek-v3", PATTERNS(deepseek_v3), false, false},
    {"deepseek-coder", PATTERNS(deepseek_coder), false, false},
    {"falcon", PATTERNS(falcon), false, false},
    {"starcoder", PATTERNS(starcoder), false, false},
    {"refact", PATTERNS(starcoder), false, false},
    {"command-r", PATTERNS(starcoder), false, false},
    {"smollm", PATTERNS(starcoder), false, false},
    {"codeshell", PATTERNS(starcoder), false, false},
    {"exaone", PATTERNS(starcoder), false, false},
    {"minerva-7b", PATTERNS(starcoder), false, false},
    {"gpt-2", PATTERNS(gpt_2), false, false},
    {"mpt", PATTERNS(gpt_2), false, false},
    {"olmo", PATTERNS(gpt_2), false, false},
    {"jais", PATTERNS(gpt_2), false, false},
    {"phi-2", PATTERNS(gpt_2), false, false},
    {"gigachat", PATTERNS(gpt_2), false, false},
    {"roberta-bpe", PATTERNS(gpt_2), false, false},
    {"jina-v1-en", PATTERNS(gpt_2), false, false},
    {"jina-v2-es", PATTERNS(gpt_2), false, false},
    {"jina-v2-de", PATTERNS(gpt_2), false, false},
    {"jina-v2-code", PATTERNS(gpt_2), false, false},
    {"jina-es", PATTERNS(gpt_2), false, false},
    {"jina-de", PATTERNS(gpt_2), false, false},
    {"qwen2", PATTERNS(qwen2), false, false},
    {"deepseek-r1-qwen", PATTERNS(qwen2), false, false},
    {"stablelm2", PATTERNS(qwen2), false, false},
    {"megrez", PATTERNS(qwen2), false, false},
    {"qwen35", PATTERNS(qwen35), false, false},
    {"tekken", PATTERNS(tekken), true, true},
    {"gpt-4o", PATTERNS(gpt_4o), false, false},
    {"bailingmoe", PATTERNS(bailingmoe), false, false},
    {"seed-coder", PATTERNS(seed_coder), false, false},
};

const size_t pretokenizer_n_rows = sizeof pretokenizer_rows / sizeof pretokenizer_rows[0];
