"""Writes an EAGLE-3 head with random weights for the bundled model: make_head.py FILE."""
import random
import struct
import sys

N_EMBD, N_FF, N_HEAD, N_KV = 256, 64, 4, 2
WIDTH = N_EMBD // N_HEAD
READS = [0, 2, 4]  # layers of the model
ALIGNMENT, U32, I32, F32, TEXT, ARRAY = 32, 4, 5, 6, 8, 9

KEYS = [("general.architecture", TEXT, "eagle3"), ("tokenizer.ggml.model", TEXT, "none"),
        ("eagle3.extract_layers", ARRAY, READS), ("eagle3.target_hidden_size", U32, N_EMBD),
        ("eagle3.block_count", U32, 1), ("eagle3.embedding_length", U32, N_EMBD),
        ("eagle3.context_length", U32, 1024), ("eagle3.feed_forward_length", U32, N_FF),
        ("eagle3.attention.head_count", U32, N_HEAD),
        ("eagle3.attention.head_count_kv", U32, N_KV),
        ("eagle3.attention.layer_norm_rms_epsilon", F32, 1e-5)]
TENSORS = [("fc.weight", (3 * N_EMBD, N_EMBD)), ("output_norm.weight", (N_EMBD,)),
           ("blk.0.attn_norm.weight", (N_EMBD,)), ("blk.0.attn_norm_2.weight", (N_EMBD,)),
           ("blk.0.attn_q.weight", (2 * N_EMBD, N_EMBD)),
           ("blk.0.attn_k.weight", (2 * N_EMBD, N_KV * WIDTH)),
           ("blk.0.attn_v.weight", (2 * N_EMBD, N_KV * WIDTH)),
           ("blk.0.attn_output.weight", (N_EMBD, N_EMBD)), ("blk.0.ffn_norm.weight", (N_EMBD,)),
           ("blk.0.ffn_gate.weight", (N_EMBD, N_FF)), ("blk.0.ffn_up.weight", (N_EMBD, N_FF)),
           ("blk.0.ffn_down.weight", (N_FF, N_EMBD))]


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def item(kind, value):
    if kind == TEXT:
        return text(value)
    if kind == ARRAY:
        return struct.pack("<IQ%di" % len(value), I32, len(value), *value)
    return struct.pack("<f" if kind == F32 else "<I", value)


def main():
    weights = random.Random(1)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(TENSORS), len(KEYS))
    for name, kind, value in KEYS:
        header += text(name) + struct.pack("<I", kind) + item(kind, value)
    data = b""
    for name, shape in TENSORS:
        header += text(name) + struct.pack("<I%dQ" % len(shape), len(shape), *shape)
        header += struct.pack("<IQ", 0, len(data))  # float32, offset
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        mean = 1 if "norm" in name else 0
        data += struct.pack("<%df" % n, *(mean + weights.gauss(0, 0.05) for _ in range(n)))
    with open(sys.argv[1], "wb") as f:
        f.write(header + bytes(-len(header) % ALIGNMENT) + data)


main()
