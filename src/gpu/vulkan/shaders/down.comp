// down.comp: the second half of an FFN whose down matrix has a row per neuron. A workgroup sums 32
// units of every 64th row; down_add.comp adds these partial sums in order.
#version 460
#include "vulkan.glsl"
#include "formats.glsl"

PUSHED(vulkan_down_args)

int row_of(int item) { return a.list != 0 ? load_int(at4(a.list, item)) : item; }
float factor_of(int item, int c) { return load_float(at4(a.h, int64_t(c) * a.ldh + item)); }
void put(int i, int c, float v) {
    int64_t part = int64_t(gl_WorkGroupID.y) * a.n_cols + c;
    store_float(at4(a.partial, part * a.n_in + i), v);
}

#include "down.glsl"

void main() {
    int parts = int(gl_NumWorkGroups.y), first = int(gl_WorkGroupID.y);
    int count = a.count != 0 ? load_int(a.count) : a.n_max, c0 = int(COLS * gl_WorkGroupID.z);
    sum_rows(int(gl_WorkGroupID.x), first, parts, count, c0, a.n_cols);
    if (a.fired == 0 || gl_WorkGroupID.x != 0 || c0 != 0) return;
    int n_read = 0;
    for (int i = first + int(gl_LocalInvocationID.x) * parts; i < count; i += 128 * parts) {
        bool any = false;
        for (int c = 0; c < a.n_cols; c++) any = any || factor_of(i, c) != 0.0;
        n_read += any ? 1 : 0;
    }
    if (n_read > 0) count_at(a.fired, n_read);
}
