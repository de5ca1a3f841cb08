// down_add.comp: adds the 64 parts of down.comp, bias and y. A workgroup computes 64 outputs. Four
// threads share an output: each adds a quarter of its parts.
#version 460
#include "vulkan.glsl"

PUSHED(vulkan_down_args)

const int PARTS = 64, SIDE = 64, GROUPS = 4;
shared float sums[GROUPS * SIDE];

void main() {
    int t = int(gl_LocalInvocationID.x), lane = t % SIDE, c = int(gl_WorkGroupID.y);
    int i = SIDE * int(gl_WorkGroupID.x) + lane, first = t / SIDE * (PARTS / GROUPS);
    float v = 0;
    for (int p = first; p < first + PARTS / GROUPS && i < a.n_in; p++)
        v += load_float(at4(a.partial, (int64_t(p) * a.n_cols + c) * a.n_in + i));
    sums[t] = v;
    barrier();
    if (t >= SIDE || i >= a.n_in) return;
    for (int g = 1; g < GROUPS; g++) v += sums[g * SIDE + lane];
    if (a.bias != 0) v += load_float(at4(a.bias, i));
    uint64_t y = at4(a.y, int64_t(c) * a.ldy + i);
    store_float(y, a.add != 0 ? load_float(y) + v : v);
}
