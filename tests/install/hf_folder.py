"""hf_folder.py FOLDER: writes a Hugging Face model of two small layers, without a tokenizer."""

import json
import os
import random
import struct
import sys

folder = sys.argv[1]
n_embd, n_ff, n_layer, n_head, n_vocab = 64, 96, 2, 4, 40
shapes = {"model.embed_tokens.weight": [n_vocab, n_embd], "model.norm.weight": [n_embd],
          "lm_head.weight": [n_vocab, n_embd]}
for i in range(n_layer):
    for name, shape in {"input_layernorm": [n_embd], "post_attention_layernorm": [n_embd],
                        "self_attn.q_proj": [n_embd, n_embd], "self_attn.k_proj": [n_embd, n_embd],
                        "self_attn.v_proj": [n_embd, n_embd], "self_attn.o_proj": [n_embd, n_embd],
                        "mlp.gate_proj": [n_ff, n_embd], "mlp.up_proj": [n_ff, n_embd],
                        "mlp.down_proj": [n_embd, n_ff]}.items():
        shapes[f"model.layers.{i}.{name}.weight"] = shape

random.seed(1)
header, data = {}, bytearray()
for name, shape in shapes.items():
    n = shape[0] * (shape[1] if len(shape) > 1 else 1)
    begin = len(data)
    data += struct.pack(f"<{n}f", *(random.uniform(-1, 1) for _ in range(n)))
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
os.makedirs(folder, exist_ok=True)
with open(f"{folder}/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
with open(f"{folder}/config.json", "w") as f:
    json.dump({"model_type": "llama", "hidden_size": n_embd, "intermediate_size": n_ff,
               "num_hidden_layers": n_layer, "num_attention_heads": n_head,
               "num_key_value_heads": n_head, "vocab_size": n_vocab, "tie_word_embeddings": False,
               "max_position_embeddings": 512, "rms_norm_eps": 1e-05}, f)
