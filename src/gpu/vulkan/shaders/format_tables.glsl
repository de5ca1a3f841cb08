// format_tables.glsl: IQ4_NL, IQ4_XS, MXFP4 and NVFP4: nibbles are indices of a table. Their order
// is that of Q4_0, except in NVFP4. Scales come before the nibbles of a block in the file.

// QUANT_IQ4_VALUES, QUANT_E2M1_VALUES: four signed bytes a word.
const uint iq4_table[4] = uint[4](0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
const uint e2m1_table[4] = uint[4](0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);

uint TABLE_bytes(uint nibbles, bool iq4) {
    uint v = 0;
    for (int k = 0; k < 4; k++) {
        uint index = nibbles >> (8 * k) & 15u;
        uint word = iq4 ? iq4_table[index / 4] : e2m1_table[index / 4];
        v |= (word >> (8 * (index % 4)) & 0xffu) << (8 * k);
    }
    return v;
}

unit TABLE_unit(uint64_t nibbles, bool iq4) {
    unit u;
    uvec4 w = load_quants(nibbles);
    for (int k = 0; k < 4; k++) {
        u.q[k] = TABLE_bytes(w[k] & 0x0f0f0f0fu, iq4);
        u.q[4 + k] = TABLE_bytes(w[k] >> 4 & 0x0f0f0f0fu, iq4);
    }
    u.m[0] = u.m[1] = 0;
    return u;
}

// Half d per unit behind the nibbles.
unit IQ4_NL_unit(uint64_t row, int n, int i) {
    unit u = TABLE_unit(part(row, 16 * i, 18 * i + 2), true);
    u.s[0] = u.s[1] = half_float(load_short(part(row, n / 2 + 2 * i, 18 * i)));
    return u;
}

// Eight units share 8 bytes behind the nibbles: half d, two high bits of each scale, their low nibbles.
unit IQ4_XS_unit(uint64_t row, int n, int i) {
    int j = i % 8, block = 136 * (i / 8);
    unit u = TABLE_unit(part(row, 16 * i, block + 8 + 16 * j), true);
    uvec2 head = load8(part(row, n / 2 + 8 * (i / 8), block));
    uint scale = head.y >> (4 * j) & 15u | (head.x >> (16 + 2 * j) & 3u) << 4;
    u.s[0] = u.s[1] = half_float(head.x) * float(int(scale) - 32);
    return u;
}

// A byte per unit: 2^(e - 128), since the table has doubled values.
unit MXFP4_unit(uint64_t row, int n, int i) {
    unit u = TABLE_unit(part(row, 16 * i, 17 * i + 1), false);
    uint e = load_byte(part(row, n / 2 + i, 17 * i));
    uint bits = e < 2u ? 0x00200000u << e : e == 255u ? 0x7fc00000u : (e - 1u) << 23;
    u.s[0] = u.s[1] = uintBitsToFloat(bits);
    return u;
}

float UE4M3_half(uint bits) {
    int fraction = int(bits & 7u), exponent = int(bits >> 3 & 15u);
    if (bits == 0x7fu) return 0.0;
    if (exponent == 0) return float(fraction) * (1.0 / 1024.0);
    return float(8 + fraction) * float(1 << exponent) * (1.0 / 2048.0);
}

// Byte j of a group's eight bytes has elements j and j + 8. Behind the nibbles each group has a
// byte, d: four bits of exponent and three of mantissa, no sign. d is halved, because the table has
// doubled values.
unit NVFP4_unit(uint64_t row, int n, int i) {
    unit u;
    int block = 36 * (i / 2);
    uvec4 w = load_quants(part(row, 16 * i, block + 4 + 16 * (i % 2)));
    uint scales = load_short(part(row, n / 2 + 2 * i, block + 2 * (i % 2)));
    for (int g = 0; g < 2; g++) {
        for (int k = 0; k < 2; k++) {
            u.q[4 * g + k] = TABLE_bytes(w[2 * g + k] & 0x0f0f0f0fu, false);
            u.q[4 * g + 2 + k] = TABLE_bytes(w[2 * g + k] >> 4 & 0x0f0f0f0fu, false);
        }
        u.s[g] = UE4M3_half(scales >> (8 * g) & 0xffu);
        u.m[g] = 0;
    }
    return u;
}
