// block.glsl: sums over a workgroup of at most 512 threads.

shared float block_part[64]; // of a subgroup each

float block_sum(float v) {
    v = subgroupAdd(v);
    barrier(); // an earlier sum has been read
    if (LANE == 0) block_part[gl_SubgroupID] = v;
    barrier();
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += block_part[i];
    return sum;
}
