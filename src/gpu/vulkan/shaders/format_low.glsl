// format_low.glsl: the formats of three bits and less (quant_blocks.h). Blocks of packed rows are as
// in the file, aligned to two bytes. Eight values (in IQ3 four) are a point of a code book, given by
// its index: 16 bits in device memory (quant_grids.h), which the L1 cache holds. They become signed
// bytes as in quant_low.h, four a word.

uint point_at(int book, uint index) {
    return load_short(code_books() + uint64_t(uint(book) + 2u * index));
}

// Four integers of 2 or 4 bits as bytes.
uint spread_2(uint bits) {
    uint v = bits & 0xffu;
    v = (v | v << 12) & 0x000f000fu;
    return (v | v << 6) & 0x03030303u;
}
uint spread_4(uint bits) {
    uint v = bits & 0xffffu;
    v = (v | v << 8) & 0x00ff00ffu;
    return (v | v << 4) & 0x0f0f0f0fu;
}
uvec2 spread_pair(uint bits) { return uvec2(spread_2(bits), spread_2(bits >> 8)); }

// Subtracts 1 from bytes of 0, 1 or 2.
uvec2 less_1(uvec2 v) { return v + 0x7f7f7f7fu ^ 0x80808080u; }

// Negates the positive bytes whose bit is set.
uvec2 negate(uvec2 v, uint signs) {
    uvec2 one = uvec2(spread_bits(signs), spread_bits(signs >> 4));
    return (v ^ one * 255u) + one;
}

// Seven signs and the eighth, which makes the number of negative values even.
uint even_signs(uint seven) { return seven | (uint(bitCount(seven)) & 1u) << 7; }

// Points: 0 1 2 are 8 25 43 in IQ2, -8 0 8 in IQ1, where 1 is added or, with `down`, subtracted.
uvec2 IQ2_point(int book, uint index) {
    uvec2 v = spread_pair(point_at(book, index));
    return 0x08080808u + v * 17u + (v >> 1 & 0x01010101u);
}
uvec2 IQ1_point(uint index, bool down) {
    uvec2 v = spread_pair(point_at(BOOK_IQ1, index));
    return v * 8u + (down ? 0x77777777u : 0x79797979u) ^ 0x80808080u;
}
// 0 .. 6 are 4 .. 52, 7 is 62.
uint IQ3_XXS_point(uint index) {
    uint v = spread_4(point_at(BOOK_IQ3_XXS, index));
    return v * 8u + 0x04040404u + (v & v >> 1 & v >> 2 & 0x01010101u) * 2u;
}
uint IQ3_S_point(uint index) {
    return spread_4(point_at(BOOK_IQ3_S, index)) * 2u + 0x01010101u;
}

void put_eight(inout unit u, int k, uvec2 v) {
    u.q[2 * k] = v.x;
    u.q[2 * k + 1] = v.y;
}
void put_scales(inout unit u, float low, float high) {
    u.s[0] = low;
    u.s[1] = high;
    u.m[0] = u.m[1] = 0;
}

unit IQ2_XXS_unit(uint64_t block, int g) {
    unit u;
    uint64_t at = block + uint64_t(2 + 8 * g);
    uint index = load_pair(at), signs = load_pair(at + 4ul);
    for (int k = 0; k < 4; k++)
        put_eight(u, k, negate(IQ2_point(BOOK_IQ2_XXS, index >> (8 * k) & 0xffu),
                               even_signs(signs >> (7 * k) & 0x7fu)));
    float scale = half_float(load_short(block)) * float(2u * (signs >> 28) + 1u) * 0.125;
    put_scales(u, scale, scale);
    return u;
}

// Two scales of four bits.
void put_scales_IQ2(inout unit u, uint64_t block, uint scales) {
    float d = half_float(load_short(block));
    put_scales(u, d * float(2u * (scales & 15u) + 1u) * 0.125,
               d * float(2u * (scales >> 4) + 1u) * 0.125);
}

unit IQ2_XS_unit(uint64_t block, int g) {
    unit u;
    for (int k = 0; k < 4; k++) {
        uint v = load_short(block + uint64_t(2 + 8 * g + 2 * k));
        put_eight(u, k, negate(IQ2_point(BOOK_IQ2_XS, v & 511u), even_signs(v >> 9)));
    }
    put_scales_IQ2(u, block, load_byte(block + uint64_t(66 + g)));
    return u;
}

unit IQ2_S_unit(uint64_t block, int g) {
    unit u;
    uint low = load_pair(block + uint64_t(2 + 4 * g)), signs = load_pair(block + uint64_t(34 + 4 * g));
    uint high = load_byte(block + uint64_t(66 + g));
    for (int k = 0; k < 4; k++) {
        uint index = low >> (8 * k) & 0xffu | (high >> (2 * k) & 3u) << 8;
        put_eight(u, k, negate(IQ2_point(BOOK_IQ2_S, index), signs >> (8 * k)));
    }
    put_scales_IQ2(u, block, load_byte(block + uint64_t(74 + g)));
    return u;
}

unit IQ3_XXS_unit(uint64_t block, int g) {
    unit u;
    uint signs = load_pair(block + uint64_t(66 + 4 * g));
    for (int k = 0; k < 4; k++) {
        uint index = load_short(block + uint64_t(2 + 8 * g + 2 * k));
        uvec2 v = uvec2(IQ3_XXS_point(index & 0xffu), IQ3_XXS_point(index >> 8));
        put_eight(u, k, negate(v, even_signs(signs >> (7 * k) & 0x7fu)));
    }
    float scale = half_float(load_short(block)) * float(2u * (signs >> 28) + 1u) * 0.25;
    put_scales(u, scale, scale);
    return u;
}

unit IQ3_S_unit(uint64_t block, int g) {
    unit u;
    uint high = load_byte(block + uint64_t(66 + g)), signs = load_pair(block + uint64_t(74 + 4 * g));
    for (int k = 0; k < 4; k++) {
        uint index = load_short(block + uint64_t(2 + 8 * g + 2 * k)), above = high >> (2 * k);
        uvec2 v = uvec2(IQ3_S_point(index & 0xffu | (above & 1u) << 8),
                        IQ3_S_point(index >> 8 | (above & 2u) << 7));
        put_eight(u, k, negate(v, signs >> (8 * k)));
    }
    uint scale = load_byte(block + uint64_t(106 + g / 2)) >> (4 * (g % 2)) & 15u;
    float s = half_float(load_short(block)) * float(2u * scale + 1u);
    put_scales(u, s, s);
    return u;
}

unit IQ1_S_unit(uint64_t block, int g) {
    unit u;
    uint low = load_pair(block + uint64_t(2 + 4 * g)), high = load_short(block + uint64_t(34 + 2 * g));
    for (int k = 0; k < 4; k++)
        put_eight(u, k, IQ1_point(low >> (8 * k) & 0xffu | (high >> (3 * k) & 7u) << 8,
                                  high >> 15 != 0u));
    float scale = half_float(load_short(block)) * float(2u * (high >> 12 & 7u) + 1u) * 0.125;
    put_scales(u, scale, scale);
    return u;
}

unit IQ1_M_unit(uint64_t block, int g) {
    unit u;
    uint low = load_pair(block + uint64_t(4 * g)), high = load_short(block + uint64_t(32 + 2 * g));
    uint half_bits = 0;
    for (int k = 0; k < 4; k++) {
        uint above = high >> (4 * k);
        put_eight(u, k, IQ1_point(low >> (8 * k) & 0xffu | (above & 7u) << 8, (above & 8u) != 0u));
        half_bits |= load_short(block + uint64_t(48 + 2 * k)) >> 12 << (4 * k);
    }
    uint scales = load_short(block + uint64_t(48 + g / 2 * 2)) >> (6 * (g % 2));
    float d = half_float(half_bits);
    put_scales(u, d * float(2u * (scales & 7u) + 1u) * 0.125,
               d * float(2u * (scales >> 3 & 7u) + 1u) * 0.125);
    return u;
}

// Digit number `places` to base 3 of bytes that are fractions; power is 3^places.
uint digit_3(uint v, uint power) {
    uint even = (v & 0x00ff00ffu) * power & 0x00ff00ffu, odd = (v >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu;
    return even * 3u >> 8 & 0x00ff00ffu | odd * 3u & 0xff00ff00u;
}

unit TQ1_0_unit(uint64_t block, int g) {
    unit u;
    uint power = 1;
    for (int k = g < 5 ? g : 2 * (g - 5); k > 0; k--) power *= 3u;
    for (int k = 0; k < 4; k++) {
        uvec2 v;
        if (g < 7 || k < 2) {
            int at = g < 5 ? 8 * k : 32 + 8 * (k % 2);
            uint of_pair = g >= 5 && k >= 2 ? 3u * power : power;
            uint64_t from = block + uint64_t(at);
            v = uvec2(digit_3(load_pair(from), of_pair), digit_3(load_pair(from + 4ul), of_pair));
        } else {
            uint four = load_pair(block + 48ul);
            v = uvec2(digit_3(four, k == 2 ? 1u : 9u), digit_3(four, k == 2 ? 3u : 27u));
        }
        put_eight(u, k, less_1(v));
    }
    float d = half_float(load_short(block + 52ul));
    put_scales(u, d, d);
    return u;
}

unit TQ2_0_unit(uint64_t block, int g) {
    unit u;
    for (int k = 0; k < 4; k++) {
        uint64_t at = block + uint64_t(32 * (g / 4) + 8 * k);
        uvec2 v = uvec2(load_pair(at), load_pair(at + 4ul));
        put_eight(u, k, less_1(v >> (2 * (g % 4)) & 0x03030303u));
    }
    float d = half_float(load_short(block + 64ul));
    put_scales(u, d, d);
    return u;
}

unit Q1_0_unit(uint64_t block, int g) {
    unit u;
    uint bits = load_pair(block + uint64_t(2 + 4 * g));
    for (int k = 0; k < 4; k++)
        put_eight(u, k, less_1(2u * uvec2(spread_bits(bits >> (8 * k)), spread_bits(bits >> (8 * k + 4)))));
    float d = half_float(load_short(block));
    put_scales(u, d, d);
    return u;
}

unit Q2_0_unit(uint64_t block, int g) {
    unit u;
    for (int k = 0; k < 4; k++)
        put_eight(u, k, less_1(spread_pair(load_short(block + uint64_t(2 + 8 * g + 2 * k)))));
    float d = half_float(load_short(block));
    put_scales(u, d, d);
    return u;
}
