/* pretokenizer_table.c: the patterns of each pre-tokenizer name.
 *
 * Patterns of a name apply in sequence, each to the pieces left by the previous one. Every match is
 * a piece, and so is the text between two matches. PCRE2 matches them with its UTF and UCP options.
 * Some patterns differ from those of the vocabularies' authors; they split texts into the same
 * pieces:
 *   - a letter that is not a-z is the class [^\P{L}a-z] instead of a group with a look-ahead, so
 *     that repeating it needs no stack and no backtracking through groups; upper-case and
 *     lower-case letters are classes that exclude everything else, because classes cannot be
 *     intersected;
 *   - blanks at the end of a piece are (?<!\s)\s++\z instead of \s+$, which would take quadratic
 *     time in a long run of blanks elsewhere;
 *   - digits in groups of three from the right: only the first digit of a number checks how many
 *     are left over, whereas \d{1,3}(?=(?:\d{3})*\b) would scan the rest of the number at every
 *     digit;
 *   - where a range of ideographs or punctuation would include blanks, the blanks are excluded: no
 *     other class contains blanks.
 * kimi-k2, tiny_aya and youtu split before an upper-case letter within a word, like their authors'
 * patterns; llama.cpp does not. */
#include "pretokenizer.h"

#define CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define NOT_WORD     "[^\\r\\n\\p{L}\\p{N}]?"
#define OTHERS       " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define OTHERS_PATHS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|"
#define BLANKS       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Words without and with upper-case letters inside; lower and upper case of ASCII only. */
#define ASCII_CASED(ending)                                                                        \
    NOT_WORD "[^\\P{L}a-z]*[^\\P{L}A-Z]+" ending "|" NOT_WORD "[^\\P{L}a-z]+[^\\P{L}A-Z]*" ending  \
             "|"

/* Like ASCII_CASED for the letters and marks of all scripts, except those in `without`. */
#define CASED(without)                                                                             \
    NOT_WORD "[^\\p{Ll}" NO_LETTER without "]*[^\\p{Lu}\\p{Lt}" NO_LETTER without                  \
             "]+" CONTRACTIONS "?|" NOT_WORD "[^\\p{Ll}" NO_LETTER without                         \
             "]+[^\\p{Lu}\\p{Lt}" NO_LETTER without "]*" CONTRACTIONS "?|"
#define NO_LETTER "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}"

/* Ideographs: Unicode's script Han, written out because PCRE2 versions disagree about it. */
#define HAN                                                                                        \
    "\\x{2E80}-\\x{2E99}\\x{2E9B}-\\x{2EF3}\\x{2F00}-\\x{2FD5}\\x{3005}\\x{3007}"                  \
    "\\x{3021}-\\x{3029}\\x{3038}-\\x{303B}\\x{3400}-\\x{4DBF}\\x{4E00}-\\x{9FFF}"                 \
    "\\x{F900}-\\x{FA6D}\\x{FA70}-\\x{FAD9}\\x{16FE2}-\\x{16FE3}\\x{16FF0}-\\x{16FF1}"             \
    "\\x{20000}-\\x{2FA1D}\\x{30000}-\\x{323AF}"

/* Groups of three digits, counted from the right; `digit` is a class. */
#define THREES(digit) "(?<!" digit ")" digit "{1,2}(?=(?:" digit "{3})*+(?!" digit "))|" digit "{3}"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"

/* Words as deepseek-v3 splits them. */
#define MARKED_WORDS                                                                               \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"           \
    "[\\p{L}\\p{M}]+|"
#define IDEOGRAPHS_AND_KANA "[一-龥぀-ゟ゠-ヿ]+"
#define BLOOM_WORDS         " ?[^(\\s|.,!?…。，、।۔،)]+"

static const char *const llama_bpe_patterns[] = {
    CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}{1,3}|" OTHERS BLANKS,
};
static const char *const minicpm5_patterns[] = {
    "\\p{N}{1,3}",
    CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}+|" OTHERS BLANKS,
};
static const char *const jais2_patterns[] = {
    CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}{1,3}|" OTHERS
                 "\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|"
                 "\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s",
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
    IDEOGRAPHS_AND_KANA,
    MARKED_WORDS " ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS,
};
static const char *const spark_patterns[] = {
    "\\p{N}{1,3}",
    IDEOGRAPHS_AND_KANA,
    MARKED_WORDS " ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+",
    "\\p{N}",
};
static const char *const afmoe_patterns[] = {
    THREES("\\p{N}"),
    ("[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}"
     "\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{0E40}-\\x{0E7F}"
     "\\x{0E80}-\\x{0EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"
     "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+"),
    MARKED_WORDS " ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS,
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
    GPT2,
    "[0-9][0-9][0-9]",
};
static const char *const starcoder_patterns[] = {
    "\\p{N}",
    GPT2,
};
static const char *const gpt_2_patterns[] = {
    GPT2,
};
static const char *const qwen2_patterns[] = {
    CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}|" OTHERS BLANKS,
};
static const char *const ufakzeka_patterns[] = {
    NOT_WORD "\\p{L}+|\\p{N}|" OTHERS BLANKS,
};
static const char *const laguna_patterns[] = {
    "[^\\n]+|\\n+",
    CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}|" OTHERS BLANKS,
};
static const char *const qwen35_patterns[] = {
    CONTRACTIONS "|" NOT_WORD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS,
};
static const char *const exaone_moe_patterns[] = {
    CONTRACTIONS "|" NOT_WORD "\\p{L}[\\p{L}\\p{M}]*+(?: \\p{L}[\\p{L}\\p{M}]*+)*+|\\p{N}|"
                 " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
};
static const char *const tekken_patterns[] = {
    ASCII_CASED("") "\\p{N}|" OTHERS_PATHS BLANKS,
};
static const char *const gpt_4o_patterns[] = {
    ASCII_CASED(CONTRACTIONS "?") "\\p{N}{1,3}|" OTHERS_PATHS BLANKS,
};
static const char *const kimi_k2_patterns[] = {
    "[" HAN "]+|" CASED(HAN) "\\p{N}{1,3}|" OTHERS BLANKS,
};
static const char *const tiny_aya_patterns[] = {
    "(?<!\\d)\\d{1,3}(?=(?:\\d{3})*+\\b)|\\G(?<=\\d)\\d{3}",
    CASED("") "\\p{N}{1,3}|" OTHERS_PATHS BLANKS,
};
static const char *const youtu_patterns[] = {
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+"
    "|" IDEOGRAPHS_AND_KANA,
    CASED("") "\\p{N}|" OTHERS_PATHS BLANKS,
};
static const char *const bailingmoe_patterns[] = {
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" NOT_WORD "\\p{L}+|\\p{N}|" OTHERS
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
};
static const char *const seed_coder_patterns[] = {
    CONTRACTIONS "|" NOT_WORD "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" BLANKS,
};
static const char *const superbpe_patterns[] = {
    "\\p{N}+",
    THREES("\\d"),
};
static const char *const bloom_patterns[] = {
    BLOOM_WORDS,
};
static const char *const viking_patterns[] = {
    BLOOM_WORDS,
    "\\p{N}",
};
static const char *const lines_patterns[] = {
    "[^\\n]+|\\n+",
};
static const char *const unnamed_patterns[] = {
    "[\\p{P}\\$\\+<=>\\^~\\|]+",
    GPT2,
    "\\p{N}+",
    "[0-9][0-9][0-9]",
};

#define PATTERNS(name) name##_patterns, (int)(sizeof name##_patterns / sizeof name##_patterns[0])

const char pretokenizer_default_name[] = "default";

/* Rows with equal patterns and flags are adjacent. */
const pretokenizer_row pretokenizer_rows[] = {
    {"default", PATTERNS(unnamed), 0},
    {"llama-bpe", PATTERNS(llama_bpe), PRE_WHOLE_PIECES | PRE_ADD_BOS},
    {"llama3", PATTERNS(llama_bpe), PRE_WHOLE_PIECES | PRE_ADD_BOS},
    {"llama-v3", PATTERNS(llama_bpe), PRE_WHOLE_PIECES | PRE_ADD_BOS},
    {"falcon3", PATTERNS(llama_bpe), PRE_WHOLE_PIECES | PRE_ADD_BOS},
    {"falcon-h1", PATTERNS(llama_bpe), PRE_WHOLE_PIECES | PRE_ADD_BOS},
    {"pixtral", PATTERNS(llama_bpe), PRE_WHOLE_PIECES | PRE_ADD_BOS},
    {"midm-2.0", PATTERNS(llama_bpe), PRE_WHOLE_PIECES | PRE_ADD_BOS},
    {"lfm2", PATTERNS(llama_bpe), PRE_WHOLE_PIECES | PRE_ADD_BOS},
    {"dbrx", PATTERNS(llama_bpe), 0},
    {"smaug-bpe", PATTERNS(llama_bpe), 0},
    {"glm4", PATTERNS(llama_bpe), 0},
    {"chatglm-bpe", PATTERNS(llama_bpe), 0},
    {"minicpm5", PATTERNS(minicpm5), PRE_WHOLE_PIECES},
    {"jais-2", PATTERNS(jais2), 0},
    {"deepseek-llm", PATTERNS(deepseek_llm), 0},
    {"deepseek-v3", PATTERNS(deepseek_v3), 0},
    {"hunyuan-dense", PATTERNS(deepseek_v3), 0},
    {"joyai-llm", PATTERNS(deepseek_v3), 0},
    {"hy_v4", PATTERNS(deepseek_v3), 0},
    {"spark2_5", PATTERNS(spark), 0},
    {"afmoe", PATTERNS(afmoe), 0},
    {"deepseek-coder", PATTERNS(deepseek_coder), 0},
    {"falcon", PATTERNS(falcon), 0},
    {"starcoder", PATTERNS(starcoder), 0},
    {"refact", PATTERNS(starcoder), 0},
    {"command-r", PATTERNS(starcoder), 0},
    {"smollm", PATTERNS(starcoder), 0},
    {"codeshell", PATTERNS(starcoder), 0},
    {"exaone", PATTERNS(starcoder), 0},
    {"minerva-7b", PATTERNS(starcoder), 0},
    {"mellum2", PATTERNS(starcoder), 0},
    {"gpt-2", PATTERNS(gpt_2), 0},
    {"mpt", PATTERNS(gpt_2), 0},
    {"olmo", PATTERNS(gpt_2), 0},
    {"jais", PATTERNS(gpt_2), 0},
    {"phi-2", PATTERNS(gpt_2), 0},
    {"gigachat", PATTERNS(gpt_2), 0},
    {"exaone4", PATTERNS(gpt_2), 0},
    {"a.x-4.0", PATTERNS(gpt_2), 0},
    {"mellum", PATTERNS(gpt_2), 0},
    {"trillion", PATTERNS(gpt_2), 0},
    {"granite-docling", PATTERNS(gpt_2), 0},
    {"modern-bert", PATTERNS(gpt_2), 0},
    {"roberta-bpe", PATTERNS(gpt_2), 0},
    {"jina-v1-en", PATTERNS(gpt_2), 0},
    {"jina-v2-es", PATTERNS(gpt_2), 0},
    {"jina-v2-de", PATTERNS(gpt_2), 0},
    {"jina-v2-code", PATTERNS(gpt_2), 0},
    {"jina-es", PATTERNS(gpt_2), 0},
    {"jina-de", PATTERNS(gpt_2), 0},
    {"qwen2", PATTERNS(qwen2), 0},
    {"deepseek-r1-qwen", PATTERNS(qwen2), 0},
    {"stablelm2", PATTERNS(qwen2), 0},
    {"megrez", PATTERNS(qwen2), 0},
    {"hunyuan", PATTERNS(qwen2), 0},
    {"solar-open", PATTERNS(qwen2), 0},
    {"grok-2", PATTERNS(qwen2), 0},
    {"kormo", PATTERNS(qwen2), 0},
    {"f2llmv2", PATTERNS(qwen2), 0},
    {"ufakzeka", PATTERNS(ufakzeka), 0},
    {"laguna", PATTERNS(laguna), 0},
    {"qwen35", PATTERNS(qwen35), 0},
    {"exaone-moe", PATTERNS(exaone_moe), 0},
    {"tekken", PATTERNS(tekken), PRE_WHOLE_PIECES | PRE_ADD_BOS},
    {"gpt-4o", PATTERNS(gpt_4o), 0},
    {"llama4", PATTERNS(gpt_4o), 0},
    {"minimax-m2", PATTERNS(gpt_4o), 0},
    {"kanana2", PATTERNS(gpt_4o), 0},
    {"talkie", PATTERNS(gpt_4o), 0},
    {"kimi-k2", PATTERNS(kimi_k2), 0},
    {"tiny_aya", PATTERNS(tiny_aya), 0},
    {"cohere2moe", PATTERNS(tiny_aya), 0},
    {"youtu", PATTERNS(youtu), PRE_WHOLE_PIECES},
    {"bailingmoe", PATTERNS(bailingmoe), 0},
    {"bailingmoe2", PATTERNS(bailingmoe), 0},
    {"llada-moe", PATTERNS(bailingmoe), 0},
    {"seed-coder", PATTERNS(seed_coder), 0},
    {"superbpe", PATTERNS(superbpe), 0},
    {"bloom", PATTERNS(bloom), 0},
    {"poro-chat", PATTERNS(bloom), 0},
    {"gpt3-finnish", PATTERNS(bloom), 0},
    {"viking", PATTERNS(viking), 0},
    {"gemma4", PATTERNS(lines), PRE_RAW | PRE_WHOLE_NEWLINES},
    {"sarvam-moe", PATTERNS(lines), PRE_RAW},
};

const size_t pretokenizer_n_rows = sizeof pretokenizer_rows / sizeof pretokenizer_rows[0];
