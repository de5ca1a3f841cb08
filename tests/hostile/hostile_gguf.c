/* hostile_gguf.c: GGUF files whose structure is wrong, byte by byte. */
#include <stdlib.h>

#include "gguf.h"
#include "hostile.h"

#define N(array) (sizeof(array) / sizeof *(array))
#define LINE     "inspect bad.gguf"
#define DATA     "run -q -m bad.gguf -p a -n 1" /* inspect reads only the header */

enum { ALIGN = 32, SECTIONS = 12 };

static bytes file;

static void save(void) {
    hostile_write_bytes("bad.gguf", &file);
}

/* ---- header ---------------------------------------------------------------------------------- */

static void make_text(const char *text) {
    hostile_write_text("bad.gguf", text);
}

static void make_folder(const char *name) {
    (void)name;
    if (system("mkdir bad.gguf") != 0) abort();
}

static void make_version(const char *version) {
    add_header(&file, "GGUF", (uint32_t)strtoul(version, NULL, 0), 0, 0);
    save();
}

static void make_tensor_count(const char *count) {
    add_header(&file, "GGUF", 3, strtoull(count, NULL, 0), 0);
    save();
}

static void make_key_count(const char *count) {
    add_header(&file, "GGUF", 3, 0, strtoull(count, NULL, 0));
    save();
}

/* ---- a complete file and its sections -------------------------------------------------------- */

/* Builds a complete file and stores where each section begins. */
static void build_whole(size_t starts[SECTIONS]) {
    int n = 0;
    const uint64_t dims[] = {8, 2};
    add_header(&file, "GGUF", 3, 1, 2);
    starts[n++] = 0; /* magic */
    starts[n++] = 4; /* version */
    starts[n++] = 8; /* counts */
    starts[n++] = 16;
    starts[n++] = file.n; /* a key */
    add_key(&file, "general.architecture", GGUF_STRING);
    starts[n++] = file.n; /* its value */
    add_text(&file, "llama");
    add_key(&file, "list", GGUF_ARRAY);
    starts[n++] = file.n; /* an array */
    add_u(&file, GGUF_U16, 4), add_u(&file, 3, 8);
    starts[n++] = file.n; /* its items */
    add_u(&file, 1, 6);
    starts[n++] = file.n; /* a tensor */
    add_tensor(&file, "tensor", 2, dims, QUANT_F32, 0);
    starts[n++] = file.n - 8; /* its offset */
    add_padding(&file, ALIGN);
    starts[n++] = file.n; /* data */
    add_u(&file, 0, 8), add_padding(&file, ALIGN);
    add_u(&file, 0, 8), add_padding(&file, ALIGN);
    starts[n++] = file.n;
}

/* Cuts the file two bytes into section number `section`. */
static void make_cut(const char *section) {
    size_t starts[SECTIONS];
    build_whole(starts);
    file.n = starts[strtoul(section, NULL, 10)] + 2;
    save();
}

static void make_whole(const char *nothing) {
    (void)nothing;
    size_t starts[SECTIONS];
    build_whole(starts);
    save();
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void make_twice(const char *key) {
    add_header(&file, "GGUF", 3, 0, 2);
    for (int i = 0; i < 2; i++) add_key(&file, key, GGUF_U8), add_u(&file, 1, 1);
    save();
}

static void make_no_key(const char *nothing) {
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, nothing, GGUF_U64), add_u(&file, 1, 8);
    save();
}

static void make_endless_string(const char *length) {
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "general.name", GGUF_STRING);
    add_u(&file, strtoull(length, NULL, 0), 8);
    add_raw(&file, "no end", 6);
    save();
}

static void make_long_array(const char *count) {
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "list", GGUF_ARRAY);
    add_u(&file, GGUF_F64, 4), add_u(&file, strtoull(count, NULL, 0), 8);
    save();
}

static void make_nested(const char *nothing) {
    (void)nothing;
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "list", GGUF_ARRAY);
    for (int i = 0; i < 9; i++) add_u(&file, GGUF_ARRAY, 4), add_u(&file, 1, 8);
    add_u(&file, GGUF_U8, 4), add_u(&file, 0, 8);
    save();
}

static void make_value_type(const char *type) {
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "key", (uint32_t)strtoul(type, NULL, 0));
    add_u(&file, 0, 8);
    save();
}

static void make_bool(const char *value) {
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "flag", GGUF_BOOL), add_u(&file, strtoul(value, NULL, 0), 1);
    save();
}

/* The name holds terminal escape sequences. */
static void make_escapes(const char *key) {
    make_twice(key);
}

static void make_alignment(const char *alignment) {
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "general.alignment", GGUF_U32);
    add_u(&file, strtoul(alignment, NULL, 0), 4);
    save();
}

static void make_alignment_text(const char *alignment) {
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "general.alignment", GGUF_STRING), add_text(&file, alignment);
    save();
}

/* ---- tensors --------------------------------------------------------------------------------- */

typedef struct tensor_info {
    const char *name;
    uint32_t n_dims;
    uint64_t dims[5];
    uint32_t type;
    uint64_t offset;
} tensor_info;

#define BIG (UINT64_C(1) << 62)

static const struct {
    const char *what;
    tensor_info tensors[2]; /* the second one is written only if it has a name */
} tensor_files[] = {
    {"dimensions 0", {{"t", 0, {1}, QUANT_F32, 0}}},
    {"dimensions 5", {{"t", 5, {1, 1, 1, 1, 1}, QUANT_F32, 0}}},
    {"dimension of 0", {{"t", 2, {8, 0}, QUANT_F32, 0}}},
    {"product over 2^63", {{"t", 3, {1u << 31, 1u << 31, 16}, QUANT_F32, 0}}},
    {"bytes over 2^64", {{"t", 2, {1u << 31, 1u << 31}, QUANT_F64, 0}}},
    {"end over 2^64", {{"t", 1, {BIG / 2}, QUANT_F32, 0}, {"u", 1, {BIG / 2}, QUANT_F32, BIG * 2}}},
    {"type 4", {{"t", 1, {32}, 4, 0}}},
    {"type 4294967295", {{"t", 1, {32}, UINT32_MAX, 0}}},
    {"half a block", {{"t", 1, {48}, QUANT_Q4_0, 0}}},
    {"odd offset", {{"t", 1, {8}, QUANT_F32, 4}}},
    {"offset beyond the end", {{"t", 1, {8}, QUANT_F32, 1 << 20}}},
    {"hole", {{"t", 1, {8}, QUANT_F32, 0}, {"u", 1, {8}, QUANT_F32, 64}}},
    {"overlap", {{"t", 1, {16}, QUANT_F32, 0}, {"u", 1, {8}, QUANT_F32, 32}}},
    {"name twice", {{"t", 1, {8}, QUANT_F32, 0}, {"t", 1, {8}, QUANT_F32, 32}}},
    {"no name", {{"", 1, {8}, QUANT_F32, 0}}},
    {"name of 64 bytes",
     {{"0123456789012345678901234567890123456789012345678901234567890123", 1, {8}, QUANT_F32, 0}}},
    {"more data than there is", {{"t", 2, {8, 1000}, QUANT_F32, 0}}},
};

static void make_tensors(const char *what) {
    static const char zeros[64];
    for (size_t i = 0; i < N(tensor_files); i++) {
        if (strcmp(tensor_files[i].what, what) != 0) continue;
        const tensor_info *t = tensor_files[i].tensors;
        int n = t[1].name ? 2 : 1;
        add_header(&file, "GGUF", 3, (uint64_t)n, 0);
        for (int k = 0; k < n; k++)
            add_tensor(&file, t[k].name, t[k].n_dims, t[k].dims, t[k].type, t[k].offset);
        add_padding(&file, ALIGN);
        add_raw(&file, zeros, sizeof zeros);
    }
    save();
}

const hostile_case hostile_gguf[] = {
    {"no such file", make_whole, "", "inspect other.gguf", 1,
     "cannot open file: other.gguf: No such file or directory"},
    {"a folder", make_folder, "", LINE, 1, "is a folder: bad.gguf: name a file in it"},
    {"empty", make_text, "", LINE, 1,
     "file ends inside the magic number: bad.gguf, byte 0 of 0: it is incomplete or damaged, fetch "
     "it again"},
    {"another format", make_text,
     "\x7f"
     "ELF and more of it",
     LINE, 1,
     "not a GGUF file (it begins 7f 45 4c 46): bad.gguf, byte 0: fetch the file again, or convert "
     "it again"},
    {"a web page", make_text, "<!DOCTYPE html><html>not found</html>", LINE, 1,
     "not a GGUF file (it begins 3c 21 44 4f): bad.gguf, byte 0: fetch the file again, or convert "
     "it again"},
    {"a pointer of Git LFS", make_text, "version https://git-lfs.github.com/spec/v1\n", LINE, 1,
     "a pointer of Git LFS, not the model: bad.gguf, byte 0: fetch the file itself with git lfs "
     "pull"},
    {"version 1", make_version, "1", LINE, 1,
     "GGUF version 1: bad.gguf, byte 4: versions 2 and 3 are read, convert it again"},
    {"version 0", make_version, "0", LINE, 1,
     "GGUF version 0: bad.gguf, byte 4: versions 2 and 3 are read, convert it again"},
    {"version 77", make_version, "77", LINE, 1,
     "GGUF version 77: bad.gguf, byte 4: versions 2 and 3 are read, convert it again"},
    {"big-endian", make_version, "0x03000000", LINE, 1,
     "big-endian GGUF (version 3 with its bytes swapped): bad.gguf, byte 4: convert it again for a "
     "little-endian machine"},
    {"2^64 - 1 tensors", make_tensor_count, "0xffffffffffffffff", LINE, 1,
     "18446744073709551615 tensors do not fit in a file of 24 bytes: bad.gguf, byte 8: fetch the "
     "file again, or convert it again"},
    {"one tensor, no bytes", make_tensor_count, "1", LINE, 1,
     "1 tensors do not fit in a file of 24 bytes: bad.gguf, byte 8: fetch the file again, or "
     "convert it again"},
    {"2^63 keys", make_key_count, "0x8000000000000000", LINE, 1,
     "9223372036854775808 keys do not fit in a file of 24 bytes: bad.gguf, byte 16: fetch the file "
     "again, or convert it again"},
    {"cut in the magic", make_cut, "0", LINE, 1,
     "file ends inside the magic number: bad.gguf, byte 0 of 2: it is incomplete or damaged, fetch "
     "it again"},
    {"cut in the version", make_cut, "1", LINE, 1,
     "file ends inside the version: bad.gguf, byte 4 of 6: it is incomplete or damaged, fetch it "
     "again"},
    {"cut in the number of tensors", make_cut, "2", LINE, 1,
     "file ends inside the number of tensors: bad.gguf, byte 8 of 10: it is incomplete or damaged, "
     "fetch it again"},
    {"cut in the number of keys", make_cut, "3", LINE, 1,
     "file ends inside the number of keys: bad.gguf, byte 16 of 18: it is incomplete or damaged, "
     "fetch it again"},
    {"cut before the keys", make_cut, "4", LINE, 1,
     "1 tensors do not fit in a file of 26 bytes: bad.gguf, byte 8: fetch the file again, or "
     "convert it again"},
    {"cut in a string", make_cut, "5", LINE, 1,
     "file ends inside a string: bad.gguf, byte 56 of 58: it is incomplete or damaged, fetch it "
     "again"},
    {"cut in the head of an array", make_cut, "6", LINE, 1,
     "file ends inside an array: bad.gguf, byte 85 of 87: it is incomplete or damaged, fetch it "
     "again"},
    {"cut in the items of an array", make_cut, "7", LINE, 1,
     "file ends inside a value: bad.gguf, byte 97 of 99: it is incomplete or damaged, fetch it "
     "again"},
    {"cut in the name of a tensor", make_cut, "8", LINE, 1,
     "file ends inside a tensor name: bad.gguf, byte 103 of 105: it is incomplete or damaged, "
     "fetch it again"},
    {"cut in an offset", make_cut, "9", LINE, 1,
     "file ends inside a tensor offset: bad.gguf, byte 141 of 143: it is incomplete or damaged, "
     "fetch it again"},
    {"cut in the data", make_cut, "10", DATA, 1,
     "tensor 'tensor' ends at byte 224 but the file has 162: bad.gguf, byte 160: it is incomplete "
     "or damaged, fetch it again"},
    {"a key twice", make_twice, "general.name", LINE, 1,
     "key 'general.name' occurs twice: bad.gguf, byte 49: fetch the file again, or convert it "
     "again"},
    {"a key with escapes, twice", make_escapes, "\x1b[2Jname\r\n", LINE, 1,
     "key '\\x1B[2Jname\\r\\n' occurs twice: bad.gguf, byte 47: fetch the file again, or convert "
     "it "
     "again"},
    {"a key without letters", make_no_key, "", LINE, 1,
     "a key has 0 bytes instead of 1 to 65535: bad.gguf, byte 24: fetch the file again, or convert "
     "it again"},
    {"a string of 2^64 - 1 bytes", make_endless_string, "0xffffffffffffffff", LINE, 1,
     "file ends inside a string: bad.gguf, byte 48 of 62: it is incomplete or damaged, fetch it "
     "again"},
    {"a string of a byte too many", make_endless_string, "7", LINE, 1,
     "file ends inside a string: bad.gguf, byte 48 of 62: it is incomplete or damaged, fetch it "
     "again"},
    {"an array of 2^61 numbers", make_long_array, "0x2000000000000000", LINE, 1,
     "file ends inside a value: bad.gguf, byte 52 of 52: it is incomplete or damaged, fetch it "
     "again"},
    {"arrays in arrays", make_nested, "", LINE, 1,
     "key 'list' has arrays nested deeper than 4: bad.gguf, byte 88: fetch the file again, or "
     "convert it again"},
    {"value type 13", make_value_type, "13", LINE, 1,
     "key 'key' has the unknown value type 13: bad.gguf, byte 35: fetch the file again, or convert "
     "it again"},
    {"a bool of 2", make_bool, "2", LINE, 1,
     "key 'flag' has a bool of 2, not 0 or 1: bad.gguf, byte 40: fetch the file again, or convert "
     "it again"},
    {"alignment 0", make_alignment, "0", LINE, 1,
     "general.alignment is 0, not a power of two of at least 8: bad.gguf, byte 53: fetch the file "
     "again, or convert it again"},
    {"alignment 24", make_alignment, "24", LINE, 1,
     "general.alignment is 24, not a power of two of at least 8: bad.gguf, byte 53: fetch the file "
     "again, or convert it again"},
    {"alignment 2^32 - 1", make_alignment, "0xffffffff", LINE, 1,
     "general.alignment is 4294967295, not a power of two of at least 8: bad.gguf, byte 53: fetch "
     "the file again, or convert it again"},
    {"alignment in words", make_alignment_text, "thirty-two", LINE, 1,
     "general.alignment is a string, not an integer: bad.gguf, byte 53: fetch the file again, or "
     "convert it again"},
    {"0 dimensions", make_tensors, "dimensions 0", LINE, 1,
     "tensor 't' has 0 dimensions instead of 1 to 4: bad.gguf, byte 33: fetch the file again, or "
     "convert it again"},
    {"5 dimensions", make_tensors, "dimensions 5", LINE, 1,
     "tensor 't' has 5 dimensions instead of 1 to 4: bad.gguf, byte 33: fetch the file again, or "
     "convert it again"},
    {"a dimension of 0", make_tensors, "dimension of 0", LINE, 1,
     "tensor 't' has a dimension of 0: bad.gguf, byte 45: fetch the file again, or convert it "
     "again"},
    {"over 2^63 elements", make_tensors, "product over 2^63", LINE, 1,
     "tensor 't' has more than 2^63 elements: bad.gguf, byte 53: fetch the file again, or convert "
     "it again"},
    {"over 2^64 bytes", make_tensors, "bytes over 2^64", LINE, 1,
     "tensor 't' has more than 2^64 bytes: bad.gguf, byte 53: fetch the file again, or convert it "
     "again"},
    {"an end over 2^64", make_tensors, "end over 2^64", LINE, 1,
     "tensor 'u' ends beyond 2^64 bytes: bad.gguf, byte 82: fetch the file again, or convert it "
     "again"},
    {"a type of old", make_tensors, "type 4", LINE, 1,
     "tensor 't' has the unknown type number 4: bad.gguf, byte 45: fetch the file again, or "
     "convert it again"},
    {"a type from nowhere", make_tensors, "type 4294967295", LINE, 1,
     "tensor 't' has the unknown type number 4294967295: bad.gguf, byte 45: fetch the file again, "
     "or convert it again"},
    {"half a block", make_tensors, "half a block", LINE, 1,
     "tensor 't' has rows of 48 elements, not a multiple of the 32 of a q4_0 block: bad.gguf, byte "
     "45: fetch the file again, or convert it again"},
    {"an odd offset", make_tensors, "odd offset", LINE, 1,
     "tensor 't' has offset 4, not a multiple of 32: bad.gguf, byte 49: fetch the file again, or "
     "convert it again"},
    {"an offset beyond the end", make_tensors, "offset beyond the end", LINE, 1,
     "tensor 't' has offset 1048576 and leaves a hole after 0: bad.gguf, byte 49: fetch the file "
     "again, or convert it again"},
    {"a hole", make_tensors, "hole", LINE, 1,
     "tensor 'u' has offset 64 and leaves a hole after 32: bad.gguf, byte 82: fetch the file "
     "again, or convert it again"},
    {"an overlap", make_tensors, "overlap", LINE, 1,
     "tensor 'u' has offset 32 and overlaps the one before, which ends at 64: bad.gguf, byte 82: "
     "fetch the file again, or convert it again"},
    {"a tensor twice", make_tensors, "name twice", LINE, 1,
     "tensor 't' occurs twice: bad.gguf, byte 57: fetch the file again, or convert it again"},
    {"a tensor without a name", make_tensors, "no name", LINE, 1,
     "a tensor name has 0 bytes instead of 1 to 63: bad.gguf, byte 24: fetch the file again, or "
     "convert it again"},
    {"a name of 64 bytes", make_tensors, "name of 64 bytes", LINE, 1,
     "a tensor name has 64 bytes instead of 1 to 63: bad.gguf, byte 24: fetch the file again, or "
     "convert it again"},
    {"more data than there is", make_tensors, "more data than there is", DATA, 1,
     "tensor 't' ends at byte 32096 but the file has 160: bad.gguf, byte 96: it is incomplete or "
     "damaged, fetch it again"},
};
const size_t hostile_n_gguf = N(hostile_gguf);
