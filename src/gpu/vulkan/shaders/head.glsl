// head.glsl: a head in shared memory: norms, RoPE, Hadamard matrices. Every function ends with a
// barrier, and all threads of the workgroup call it.

shared float head[576];

#define THREAD  int(gl_LocalInvocationID.x)
#define THREADS int(gl_WorkGroupSize.x)

// Elements [at, at + n). w 0: no weights.
void norm_head(int at, uint64_t w, int n, bool centred, float eps) {
    float mean = 0, part = 0;
    if (centred) {
        for (int i = THREAD; i < n; i += THREADS) part += head[at + i];
        mean = block_sum(part) / float(n);
        part = 0;
    }
    for (int i = THREAD; i < n; i += THREADS) part += (head[at + i] - mean) * (head[at + i] - mean);
    float scale = 1.0 / sqrt(block_sum(part) / float(n) + eps);
    for (int i = THREAD; i < n; i += THREADS)
        head[at + i] = (head[at + i] - mean) * scale * (w != 0 ? load_float(at4(w, i)) : 1.0);
    barrier();
}

// Rotates elements i and i + n_rot / 2 behind `at`; without neox elements 2 i and 2 i + 1.
void rotate_pair(int at, int i, int n_rot, bool neox, vec2 cs) {
    int even = at + (neox ? i : 2 * i), odd = at + (neox ? i + n_rot / 2 : 2 * i + 1);
    float x = head[even], y = head[odd];
    head[even] = x * cs.x - y * cs.y;
    head[odd] = x * cs.y + y * cs.x;
}

// cs: cosines and sines of the column; `back`: rotates by the negative angles.
void rotate_head(int at, uint64_t cs, int n_rot, bool neox, bool back) {
    for (int i = THREAD; i < n_rot / 2; i += THREADS) {
        float c = load_float(at4(cs, 2 * i)), s = load_float(at4(cs, 2 * i + 1));
        rotate_pair(at, i, n_rot, neox, vec2(c, back ? -s : s));
    }
    barrier();
}

// NaN stays NaN.
void clamp_head(int n, float most) {
    if (most == 0.0) return;
    for (int i = THREAD; i < n; i += THREADS)
        head[i] = head[i] > most ? most : head[i] < -most ? -most : head[i];
    barrier();
}

// Hadamard matrices of `size` elements, 0: none.
void spread_head(int n, int size) {
    if (size == 0) return;
    for (int part = 1; part < size; part *= 2) {
        for (int i = THREAD; i < n / 2; i += THREADS) {
            int at = 2 * i - (i & (part - 1));
            float x = head[at], y = head[at + part];
            head[at] = x + y;
            head[at + part] = x - y;
        }
        barrier();
    }
    float scale = 1.0 / sqrt(float(size));
    for (int i = THREAD; i < n; i += THREADS) head[i] *= scale;
    barrier();
}
