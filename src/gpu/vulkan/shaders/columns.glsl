// columns.glsl: columns for dot.glsl in shared memory, in the int8 form. Column c is q8_bytes(n) * c
// bytes behind the first one, which is its address. The shader must define MOST first, the number of
// words of all columns.

shared uint q8_words[MOST];

#define SHARED_COLUMNS
uvec4 column_quants(uint64_t column, int k) {
    int i = (int(column) + k) / 4;
    return uvec4(q8_words[i], q8_words[i + 1], q8_words[i + 2], q8_words[i + 3]);
}
float column_d(uint64_t column, int n, int k) {
    return uintBitsToFloat(q8_words[int(q8_d(column, n)) / 4 + k / 32]);
}
int column_sum(uint64_t column, int n, int k) {
    return int(q8_words[int(q8_sum(column, n)) / 4 + k / 16]);
}

// Writes the group of 32 that contains elements [i, i + 4), v, of column c (int8_of).
void put_group(vec4 v, int i, int n, int c) {
    int8_four to = int8_of(v, i);
    int column = int(q8_bytes(n)) * c / 4;
    if (i >= n) return;
    q8_words[column + i / 4] = to.q;
    if (i % 32 != 0) return;
    int sum = column + int(q8_sum(0ul, n)) / 4 + i / 16;
    q8_words[column + int(q8_d(0ul, n)) / 4 + i / 32] = floatBitsToUint(to.d);
    q8_words[sum] = uint(to.low);
    q8_words[sum + 1] = uint(to.high);
}
