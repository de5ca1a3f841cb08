/* family_folder.h: a Hugging Face folder made from a GGUF file by hand-written rules
 * (families.txt), so that the converter can be tested against files of other programs. */
#ifndef TEST_FAMILY_FOLDER_H
#define TEST_FAMILY_FOLDER_H

#include "gguf.h"
#include "hf_folder.h"

enum { FAMILY_MAX_RULES = 128, FAMILY_MAX_CASES = 112, FAMILY_MAX_INPUTS = 3 };

typedef struct family_rule {
    char name[128]; /* name of the folder's tensor, with {l} and {e} */
    char op[32];
    char inputs[FAMILY_MAX_INPUTS][96]; /* GGUF tensors, with {l} */
    int n_inputs;
} family_rule;

typedef struct family_case {
    char file[64]; /* "more/olmo2-dense" */
    char config[4096];
    family_rule rules[FAMILY_MAX_RULES];
    int n_rules;
} family_case;

/* Reads the cases of families.txt, in order; returns their number. Fails the test on an invalid
 * line. */
int family_read(family_case *cases /* [FAMILY_MAX_CASES] */);
/* Writes config.json and the tensors, in two shards with an index. A rule must name every tensor of
 * the file, or the tensor must be `ignored`. */
void family_write(const family_case *c, const gguf_file *g, bool (*ignored)(const char *name),
                  const hf_folder *f);

#endif
