"""Run large language models on ordinary machines: libpowerinfer for Python 3.8 or later.

    from powerinfer import Context, Model, Session

    with Model("model.gguf") as model, Context(model) as context, Session(context, 4096) as session:
        for text in context.stream(session, prompt="Once upon a time", max_tokens=100):
            print(text, end="", flush=True)

Two layers with the names of the C headers (docs/embedding.md, include/*.h):

- Functions, structs and constants (`pi_model_open`, `pi_context_options`, `PI_MODE_DENSE`) through
  ctypes, without any checks.
- Classes and functions without the prefix: pi_session_rewind(session, ...) is session.rewind(...),
  pi_quantize(...) is quantize(...). Constructors create or open; fields of options structs are
  keyword arguments with the defaults of the C library. Texts are str, results are dataclasses.

Errors of the library raise Error, with its status and message. An exception in a callback stops the
call, which then raises it; a callback that returns False stops the call as in C.

Objects can be closed in any order, in any thread: what another object or a running call needs stays
until it is closed as well. Calls release Python's global lock. A context and its sessions, and a
sampler, do one call at a time: a second thread waits. Context.cancel does not wait.

The library is the file $POWERINFER_LIBRARY, else one next to this file, else the system's."""
from __future__ import annotations

import array
import ctypes
import ctypes.util
import datetime
import json
import keyword
import os
import queue
import tempfile
import threading
import time
from collections import deque
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double,
                    c_float, c_int, c_int32, c_int64, c_long, c_size_t, c_uint32, c_uint64,
                    c_void_p, cast)
from dataclasses import dataclass
from enum import IntEnum
from typing import (TYPE_CHECKING, Any, Callable, Deque, Dict, Generator, List, Mapping, Optional,
                    Sequence, Tuple, TypedDict, Union)

if TYPE_CHECKING:
    from typing_extensions import Unpack

Text = Union[str, bytes]
Path = Union[str, bytes, "os.PathLike[str]"]
Time = Union[time.struct_time, datetime.datetime]
Floats = Union[Sequence[float], "array.array[float]", memoryview]
Progress = Callable[[str, float], Optional[bool]]  # stage, fraction in 0..1; False cancels
Piece = Callable[[int, str], Optional[bool]]  # token, text; False stops
Message = Callable[[str], None]  # one line


class _Struct(Structure):
    _enums_: Dict[str, Any] = {}  # enums of fields
    _counts_: Dict[str, str] = {}  # fields with the number of elements of others


def _load(version: str) -> ctypes.CDLL:
    given = os.environ.get("POWERINFER_LIBRARY")
    if given:
        return ctypes.CDLL(given)
    folder = os.path.dirname(os.path.abspath(__file__))
    names = ["libpowerinfer.so." + version, "libpowerinfer.so", "libpowerinfer.dylib",
             "powerinfer.dll", "libpowerinfer.dll"]
    for name in names:
        if os.path.exists(os.path.join(folder, name)):
            return ctypes.CDLL(os.path.join(folder, name))
    try:
        return ctypes.CDLL(ctypes.util.find_library("powerinfer") or names[0])
    except OSError as error:
        raise ImportError("libpowerinfer was not found: %s: install it, or name its file in "
                          "POWERINFER_LIBRARY" % error) from None


# ---- generated from include/*.h by bindings/generate.py ----


class pi_status(IntEnum):
    PI_OK = 0
    PI_ERR_NOMEM = 1
    PI_ERR_IO = 2
    PI_ERR_FORMAT = 3
    PI_ERR_UNSUPPORTED = 4
    PI_ERR_ARG = 5
    PI_ERR_RANGE = 6
    PI_ERR_LIMIT = 7
    PI_ERR_NOT_FOUND = 8
    PI_ERR_DEVICE = 9
    PI_ERR_CANCELLED = 10
    PI_STATUS_COUNT = 11


class pi_activity_kind(IntEnum):
    PI_ACTIVITY_DENSE = 0
    PI_ACTIVITY_NEURONS = 1
    PI_ACTIVITY_EXPERTS = 2


class pi_grammar_progress(IntEnum):
    PI_GRAMMAR_NONE = 0
    PI_GRAMMAR_WAITING = 1
    PI_GRAMMAR_OPEN = 2
    PI_GRAMMAR_MAY_END = 3
    PI_GRAMMAR_COMPLETE = 4
    PI_GRAMMAR_FAILED = 5


class pi_value_type(IntEnum):
    PI_VALUE_INT = 0
    PI_VALUE_FLOAT = 1
    PI_VALUE_BOOL = 2
    PI_VALUE_TEXT = 3


class pi_token_role(IntEnum):
    PI_TOKEN_BOS = 0
    PI_TOKEN_EOS = 1
    PI_TOKEN_EOT = 2
    PI_TOKEN_EOM = 3
    PI_TOKEN_UNK = 4
    PI_TOKEN_SEP = 5
    PI_TOKEN_PAD = 6
    PI_TOKEN_MASK = 7
    PI_TOKEN_NL = 8
    PI_TOKEN_FIM_PRE = 9
    PI_TOKEN_FIM_SUF = 10
    PI_TOKEN_FIM_MID = 11
    PI_TOKEN_FIM_PAD = 12
    PI_TOKEN_FIM_REP = 13
    PI_TOKEN_FIM_SEP = 14
    PI_TOKEN_ROLES = 15


class pi_sampler_kind(IntEnum):
    PI_SAMPLER_PENALTIES = 0
    PI_SAMPLER_DRY = 1
    PI_SAMPLER_TOP_N_SIGMA = 2
    PI_SAMPLER_TOP_K = 3
    PI_SAMPLER_TYPICAL = 4
    PI_SAMPLER_TOP_P = 5
    PI_SAMPLER_MIN_P = 6
    PI_SAMPLER_XTC = 7
    PI_SAMPLER_TEMPERATURE = 8
    PI_SAMPLER_KINDS = 9


class pi_kernels(IntEnum):
    PI_KERNELS_AUTO = 0
    PI_KERNELS_SCALAR = 1
    PI_KERNELS_AVX2 = 2
    PI_KERNELS_AVX512 = 3
    PI_KERNELS_NEON = 4


class pi_mode(IntEnum):
    PI_MODE_AUTO = 0
    PI_MODE_DENSE = 1
    PI_MODE_EXACT = 2
    PI_MODE_PREDICT = 3
    PI_MODE_THRESHOLD = 4


class pi_head(IntEnum):
    PI_HEAD_AUTO = 0
    PI_HEAD_DENSE = 1
    PI_HEAD_PREDICT = 2


class pi_cache_type(IntEnum):
    PI_CACHE_F16 = 0
    PI_CACHE_F32 = 1
    PI_CACHE_Q8_0 = 2
    PI_CACHE_BF16 = 3
    PI_CACHE_Q4_0 = 4
    PI_CACHE_Q4_1 = 5
    PI_CACHE_Q5_0 = 6
    PI_CACHE_Q5_1 = 7
    PI_CACHE_IQ4_NL = 8


class pi_device_choice(IntEnum):
    PI_DEVICE_AUTO = 0
    PI_DEVICE_CPU = 1
    PI_DEVICE_CUDA = 2
    PI_DEVICE_HIP = 3
    PI_DEVICE_VULKAN = 4
    PI_DEVICE_SIM = 5
    PI_DEVICE_COUNT = 6


class pi_logits_wanted(IntEnum):
    PI_LOGITS_NONE = 0
    PI_LOGITS_LAST = 1
    PI_LOGITS_ALL = 2


class pi_hidden_wanted(IntEnum):
    PI_HIDDEN_NONE = 0
    PI_HIDDEN_LAST = 1
    PI_HIDDEN_ALL = 2


class pi_stop(IntEnum):
    PI_STOP_NONE = 0
    PI_STOP_EOS = 1
    PI_STOP_LENGTH = 2
    PI_STOP_TEXT = 3
    PI_STOP_CANCELLED = 4


class pi_pooling(IntEnum):
    PI_POOLING_NONE = 0
    PI_POOLING_MEAN = 1
    PI_POOLING_CLS = 2
    PI_POOLING_LAST = 3
    PI_POOLING_RANK = 4
    PI_POOLING_MODEL = 5


class pi_bundles(IntEnum):
    PI_BUNDLES_KEEP = 0
    PI_BUNDLES_NONE = 1
    PI_BUNDLES_ALL = 2


PI_OK = pi_status.PI_OK
PI_ERR_NOMEM = pi_status.PI_ERR_NOMEM
PI_ERR_IO = pi_status.PI_ERR_IO
PI_ERR_FORMAT = pi_status.PI_ERR_FORMAT
PI_ERR_UNSUPPORTED = pi_status.PI_ERR_UNSUPPORTED
PI_ERR_ARG = pi_status.PI_ERR_ARG
PI_ERR_RANGE = pi_status.PI_ERR_RANGE
PI_ERR_LIMIT = pi_status.PI_ERR_LIMIT
PI_ERR_NOT_FOUND = pi_status.PI_ERR_NOT_FOUND
PI_ERR_DEVICE = pi_status.PI_ERR_DEVICE
PI_ERR_CANCELLED = pi_status.PI_ERR_CANCELLED
PI_STATUS_COUNT = pi_status.PI_STATUS_COUNT
PI_ERROR_TEXT_MAX = 512
PI_ACTIVITY_MAX_BINS = 1024
PI_ACTIVITY_DENSE = pi_activity_kind.PI_ACTIVITY_DENSE
PI_ACTIVITY_NEURONS = pi_activity_kind.PI_ACTIVITY_NEURONS
PI_ACTIVITY_EXPERTS = pi_activity_kind.PI_ACTIVITY_EXPERTS
PI_MAX_RANKS = 64
PI_GRAMMAR_NONE = pi_grammar_progress.PI_GRAMMAR_NONE
PI_GRAMMAR_WAITING = pi_grammar_progress.PI_GRAMMAR_WAITING
PI_GRAMMAR_OPEN = pi_grammar_progress.PI_GRAMMAR_OPEN
PI_GRAMMAR_MAY_END = pi_grammar_progress.PI_GRAMMAR_MAY_END
PI_GRAMMAR_COMPLETE = pi_grammar_progress.PI_GRAMMAR_COMPLETE
PI_GRAMMAR_FAILED = pi_grammar_progress.PI_GRAMMAR_FAILED
PI_VALUE_INT = pi_value_type.PI_VALUE_INT
PI_VALUE_FLOAT = pi_value_type.PI_VALUE_FLOAT
PI_VALUE_BOOL = pi_value_type.PI_VALUE_BOOL
PI_VALUE_TEXT = pi_value_type.PI_VALUE_TEXT
PI_TOKEN_BOS = pi_token_role.PI_TOKEN_BOS
PI_TOKEN_EOS = pi_token_role.PI_TOKEN_EOS
PI_TOKEN_EOT = pi_token_role.PI_TOKEN_EOT
PI_TOKEN_EOM = pi_token_role.PI_TOKEN_EOM
PI_TOKEN_UNK = pi_token_role.PI_TOKEN_UNK
PI_TOKEN_SEP = pi_token_role.PI_TOKEN_SEP
PI_TOKEN_PAD = pi_token_role.PI_TOKEN_PAD
PI_TOKEN_MASK = pi_token_role.PI_TOKEN_MASK
PI_TOKEN_NL = pi_token_role.PI_TOKEN_NL
PI_TOKEN_FIM_PRE = pi_token_role.PI_TOKEN_FIM_PRE
PI_TOKEN_FIM_SUF = pi_token_role.PI_TOKEN_FIM_SUF
PI_TOKEN_FIM_MID = pi_token_role.PI_TOKEN_FIM_MID
PI_TOKEN_FIM_PAD = pi_token_role.PI_TOKEN_FIM_PAD
PI_TOKEN_FIM_REP = pi_token_role.PI_TOKEN_FIM_REP
PI_TOKEN_FIM_SEP = pi_token_role.PI_TOKEN_FIM_SEP
PI_TOKEN_ROLES = pi_token_role.PI_TOKEN_ROLES
PI_SAMPLER_PENALTIES = pi_sampler_kind.PI_SAMPLER_PENALTIES
PI_SAMPLER_DRY = pi_sampler_kind.PI_SAMPLER_DRY
PI_SAMPLER_TOP_N_SIGMA = pi_sampler_kind.PI_SAMPLER_TOP_N_SIGMA
PI_SAMPLER_TOP_K = pi_sampler_kind.PI_SAMPLER_TOP_K
PI_SAMPLER_TYPICAL = pi_sampler_kind.PI_SAMPLER_TYPICAL
PI_SAMPLER_TOP_P = pi_sampler_kind.PI_SAMPLER_TOP_P
PI_SAMPLER_MIN_P = pi_sampler_kind.PI_SAMPLER_MIN_P
PI_SAMPLER_XTC = pi_sampler_kind.PI_SAMPLER_XTC
PI_SAMPLER_TEMPERATURE = pi_sampler_kind.PI_SAMPLER_TEMPERATURE
PI_SAMPLER_KINDS = pi_sampler_kind.PI_SAMPLER_KINDS
PI_SAMPLER_CHAIN_MAX = 32
PI_TOKENIZE_BOS = 1
PI_TOKENIZE_FORCE_BOS = 2
PI_TOKENIZE_SPECIAL = 4
PI_TOKENIZE_STOP = 8
PI_KERNELS_AUTO = pi_kernels.PI_KERNELS_AUTO
PI_KERNELS_SCALAR = pi_kernels.PI_KERNELS_SCALAR
PI_KERNELS_AVX2 = pi_kernels.PI_KERNELS_AVX2
PI_KERNELS_AVX512 = pi_kernels.PI_KERNELS_AVX512
PI_KERNELS_NEON = pi_kernels.PI_KERNELS_NEON
PI_MODE_AUTO = pi_mode.PI_MODE_AUTO
PI_MODE_DENSE = pi_mode.PI_MODE_DENSE
PI_MODE_EXACT = pi_mode.PI_MODE_EXACT
PI_MODE_PREDICT = pi_mode.PI_MODE_PREDICT
PI_MODE_THRESHOLD = pi_mode.PI_MODE_THRESHOLD
PI_HEAD_AUTO = pi_head.PI_HEAD_AUTO
PI_HEAD_DENSE = pi_head.PI_HEAD_DENSE
PI_HEAD_PREDICT = pi_head.PI_HEAD_PREDICT
PI_CACHE_F16 = pi_cache_type.PI_CACHE_F16
PI_CACHE_F32 = pi_cache_type.PI_CACHE_F32
PI_CACHE_Q8_0 = pi_cache_type.PI_CACHE_Q8_0
PI_CACHE_BF16 = pi_cache_type.PI_CACHE_BF16
PI_CACHE_Q4_0 = pi_cache_type.PI_CACHE_Q4_0
PI_CACHE_Q4_1 = pi_cache_type.PI_CACHE_Q4_1
PI_CACHE_Q5_0 = pi_cache_type.PI_CACHE_Q5_0
PI_CACHE_Q5_1 = pi_cache_type.PI_CACHE_Q5_1
PI_CACHE_IQ4_NL = pi_cache_type.PI_CACHE_IQ4_NL
PI_DEVICE_AUTO = pi_device_choice.PI_DEVICE_AUTO
PI_DEVICE_CPU = pi_device_choice.PI_DEVICE_CPU
PI_DEVICE_CUDA = pi_device_choice.PI_DEVICE_CUDA
PI_DEVICE_HIP = pi_device_choice.PI_DEVICE_HIP
PI_DEVICE_VULKAN = pi_device_choice.PI_DEVICE_VULKAN
PI_DEVICE_SIM = pi_device_choice.PI_DEVICE_SIM
PI_DEVICE_COUNT = pi_device_choice.PI_DEVICE_COUNT
PI_MAX_DEVICES = 8
PI_DEVICES_AS_NEEDED = -1
PI_ATTN_BLOCKS_AUTO = -1
PI_MAX_BATCH = 8192
PI_LOGITS_NONE = pi_logits_wanted.PI_LOGITS_NONE
PI_LOGITS_LAST = pi_logits_wanted.PI_LOGITS_LAST
PI_LOGITS_ALL = pi_logits_wanted.PI_LOGITS_ALL
PI_HIDDEN_NONE = pi_hidden_wanted.PI_HIDDEN_NONE
PI_HIDDEN_LAST = pi_hidden_wanted.PI_HIDDEN_LAST
PI_HIDDEN_ALL = pi_hidden_wanted.PI_HIDDEN_ALL
PI_STOP_NONE = pi_stop.PI_STOP_NONE
PI_STOP_EOS = pi_stop.PI_STOP_EOS
PI_STOP_LENGTH = pi_stop.PI_STOP_LENGTH
PI_STOP_TEXT = pi_stop.PI_STOP_TEXT
PI_STOP_CANCELLED = pi_stop.PI_STOP_CANCELLED
PI_STOP_TEXTS = 64
PI_STOP_TEXT_BYTES = 1024
PI_POOLING_NONE = pi_pooling.PI_POOLING_NONE
PI_POOLING_MEAN = pi_pooling.PI_POOLING_MEAN
PI_POOLING_CLS = pi_pooling.PI_POOLING_CLS
PI_POOLING_LAST = pi_pooling.PI_POOLING_LAST
PI_POOLING_RANK = pi_pooling.PI_POOLING_RANK
PI_POOLING_MODEL = pi_pooling.PI_POOLING_MODEL
PI_NORM_NONE = -1
PI_NORM_INT16 = 0
PI_NORM_TAXICAB = 1
PI_NORM_EUCLID = 2
PI_DRAFT_MAX = 64
PI_DRAFT_HEADS = 16
PI_SPECULATE_TEXTS = 256
PI_BUNDLES_KEEP = pi_bundles.PI_BUNDLES_KEEP
PI_BUNDLES_NONE = pi_bundles.PI_BUNDLES_NONE
PI_BUNDLES_ALL = pi_bundles.PI_BUNDLES_ALL
PI_TUNE_LONG = 4096
PI_DEVICE_FAILURES = 4
PI_BENCH_MAX_LIST = 32
PI_BENCH_TRACED = 2
PI_VERSION_MAJOR = 0
PI_VERSION_MINOR = 1
PI_VERSION_PATCH = 0
PI_VRAM_FREE = 18446744073709551615
PI_CHAT_TEMPLATE_PLAIN = "plain"
PI_RAM_FREE = 18446744073709551615
PI_RAM_MAPPED = 0
PI_PLACE_ALL = 18446744073709551615


class pi_cluster(Structure):
    """Opaque."""


class pi_grammar(Structure):
    """Opaque."""


class pi_sampler(Structure):
    """Opaque."""


class pi_session(Structure):
    """Opaque."""


class pi_model(Structure):
    """Opaque."""


class pi_context(Structure):
    """Opaque."""


class pi_chat_template(Structure):
    """Opaque."""


class pi_generation(Structure):
    """Opaque."""


class pi_speculator(Structure):
    """Opaque."""


class tm(Structure):
    _fields_ = [("tm_sec", c_int), ("tm_min", c_int), ("tm_hour", c_int), ("tm_mday", c_int),
                ("tm_mon", c_int), ("tm_year", c_int), ("tm_wday", c_int), ("tm_yday", c_int),
                ("tm_isdst", c_int), ("tm_gmtoff", c_long), ("tm_zone", c_char_p)]


class pi_error(_Struct):
    _fields_ = [("status", c_int), ("message", c_char * 512)]
    _enums_ = {"status": pi_status}


class pi_layer_activity(_Struct):
    _fields_ = [("kind", c_int), ("n_units", c_int32), ("n_hot", c_int32), ("hot", c_uint64),
                ("bins", POINTER(c_uint32))]
    _enums_ = {"kind": pi_activity_kind}

pi_cluster_options_lost = CFUNCTYPE(None, c_void_p, c_char_p)

pi_cluster_options_give_up = CFUNCTYPE(None, c_void_p, c_char_p)


class pi_cluster_options(_Struct):
    _fields_ = [("timeout", c_double), ("settings", c_char_p), ("split", c_float * 64),
                ("n_split", c_int32), ("lost", pi_cluster_options_lost),
                ("give_up", pi_cluster_options_give_up), ("user", c_void_p)]


class pi_rank(_Struct):
    _fields_ = [("host", c_char_p), ("first_layer", c_int32), ("end_layer", c_int32),
                ("weight_bytes", c_uint64), ("predicted_seconds", c_double),
                ("computing", c_double), ("waiting", c_double), ("sending", c_double),
                ("sent_bytes", c_uint64), ("ubatches", c_uint64)]


class pi_grammar_schema(_Struct):
    _fields_ = [("rule", c_char_p), ("schema", c_char_p), ("n_schema", c_size_t), ("widen", c_bool),
                ("name", c_char_p), ("path", c_char_p)]
    _counts_ = {"schema": "n_schema"}


class pi_grammar_options(_Struct):
    _fields_ = [("root", c_char_p), ("schemas", POINTER(pi_grammar_schema)),
                ("n_schemas", c_size_t), ("trigger_words", POINTER(c_char_p)),
                ("n_trigger_words", c_size_t), ("trigger_tokens", POINTER(c_int32)),
                ("n_trigger_tokens", c_size_t)]
    _counts_ = {"schemas": "n_schemas", "trigger_words": "n_trigger_words",
               "trigger_tokens": "n_trigger_tokens"}


class pi_memory(_Struct):
    _fields_ = [("budget", c_uint64), ("needed", c_uint64), ("buffers", c_uint64),
                ("always", c_uint64), ("pinned", c_uint64), ("ring", c_uint64), ("cache", c_uint64),
                ("streamed", c_uint64), ("cached", c_uint64), ("reads", c_uint64),
                ("read_bytes", c_uint64), ("read_seconds", c_double), ("hits", c_uint64),
                ("misses", c_uint64), ("ahead", c_uint64), ("in_vain", c_uint64),
                ("backend", c_char_p)]


class pi_metadata_override(_Struct):
    _fields_ = [("key", c_char_p), ("type", c_int), ("integer", c_int64), ("number", c_double),
                ("truth", c_bool), ("text", c_char_p)]
    _enums_ = {"type": pi_value_type}


class pi_adapter(_Struct):
    _fields_ = [("path", c_char_p), ("scale", c_float)]


class pi_placement(_Struct):
    _fields_ = [("device", c_char_p), ("device_name", c_char_p), ("n_devices", c_int32),
                ("reason", c_char_p), ("status", c_int), ("n_layers", c_int32),
                ("gpu_layers", c_int32), ("head_on_gpu", c_bool), ("neuron_share", c_double),
                ("gpu_weights", c_uint64), ("gpu_scratch", c_uint64), ("gpu_kv", c_uint64),
                ("gpu_programs", c_uint64), ("gpu_runtime", c_uint64), ("gpu_budget", c_uint64)]
    _enums_ = {"status": pi_status}


class pi_device_placement(_Struct):
    _fields_ = [("name", c_char_p), ("index", c_int32), ("first_layer", c_int32),
                ("end_layer", c_int32), ("bytes", c_uint64), ("budget", c_uint64)]


class pi_layer_placement(_Struct):
    _fields_ = [("attention_on_gpu", c_bool), ("device", c_int32), ("n_hot", c_int64),
                ("n_neurons", c_int64), ("n_own", c_int64)]


class pi_logit_bias(_Struct):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class pi_sampler_options(_Struct):
    _fields_ = [("samplers", POINTER(c_int)), ("n_samplers", c_size_t), ("temp", c_float),
                ("dynatemp_range", c_float), ("dynatemp_exponent", c_float), ("top_k", c_int32),
                ("top_p", c_float), ("min_p", c_float), ("typical_p", c_float),
                ("top_n_sigma", c_float), ("repeat_penalty", c_float), ("repeat_last_n", c_int32),
                ("presence_penalty", c_float), ("frequency_penalty", c_float),
                ("xtc_probability", c_float), ("xtc_threshold", c_float),
                ("dry_multiplier", c_float), ("dry_base", c_float), ("dry_allowed_length", c_int32),
                ("dry_last_n", c_int32), ("dry_breakers", POINTER(c_char_p)),
                ("n_dry_breakers", c_size_t), ("mirostat", c_int32), ("mirostat_tau", c_float),
                ("mirostat_eta", c_float), ("logit_bias", POINTER(pi_logit_bias)),
                ("n_logit_bias", c_size_t), ("ignore_eos", c_bool), ("seed", c_uint64),
                ("grammar", POINTER(pi_grammar))]
    _counts_ = {"samplers": "n_samplers", "dry_breakers": "n_dry_breakers",
               "logit_bias": "n_logit_bias"}


class pi_session_range(_Struct):
    _fields_ = [("data", c_void_p), ("n_tokens", c_int32)]

pi_progress = CFUNCTYPE(c_bool, c_void_p, c_char_p, c_double)


class pi_model_options(_Struct):
    _fields_ = [("no_mmap", c_bool), ("mlock", c_bool), ("vocab_only", c_bool),
                ("check_tensors", c_bool), ("pre", c_char_p),
                ("overrides", POINTER(pi_metadata_override)), ("adapters", POINTER(pi_adapter)),
                ("adapters_by_context", c_bool), ("n_overrides", c_size_t),
                ("n_adapters", c_size_t), ("progress", pi_progress), ("progress_user", c_void_p)]
    _counts_ = {"overrides": "n_overrides", "adapters": "n_adapters"}


class pi_model_info(_Struct):
    _fields_ = [("name", c_char_p), ("architecture", c_char_p), ("type", c_char_p),
                ("n_layer", c_int32), ("n_embd", c_int32), ("n_vocab", c_int32), ("n_ff", c_int32),
                ("n_head", c_int32), ("n_head_kv", c_int32), ("n_ctx_train", c_int32),
                ("n_params", c_uint64), ("weight_bytes", c_uint64), ("has_tokenizer", c_bool),
                ("token_bos", c_int32), ("token_eos", c_int32), ("add_bos", c_bool),
                ("recurrent", c_bool), ("n_draft_layer", c_int32), ("is_drafter", c_bool),
                ("n_features", c_int32)]


class pi_context_options(_Struct):
    _fields_ = [("n_threads", c_int32), ("n_threads_batch", c_int32), ("pin_threads", c_bool),
                ("n_batch", c_int32), ("max_batch", c_int32), ("n_logits", c_int32),
                ("kernels", c_int), ("mode", c_int), ("head", c_int), ("max_loss", c_float),
                ("threshold", c_float), ("cache_k", c_int), ("cache_v", c_int),
                ("attn_blocks", c_int32), ("device", c_int), ("n_devices", c_int32),
                ("devices", c_int32 * 8), ("tensor_split", c_float * 8), ("vram_budget", c_uint64),
                ("gpu_layers", c_int32), ("n_ctx", c_int32), ("ram_budget", c_uint64),
                ("expert_slack", c_float), ("backend_folder", c_char_p), ("machine", c_char_p),
                ("adapt", c_bool), ("overrides", POINTER(c_char_p)), ("n_overrides", c_int32),
                ("cpu_experts", c_int32), ("cpu_ffn", c_int32), ("cluster", POINTER(pi_cluster)),
                ("deterministic", c_bool), ("timed_forms", c_bool), ("drafter", POINTER(pi_model)),
                ("cache_folder", c_char_p)]
    _enums_ = {"kernels": pi_kernels, "mode": pi_mode, "head": pi_head, "cache_k": pi_cache_type,
              "cache_v": pi_cache_type, "device": pi_device_choice}
    _counts_ = {"overrides": "n_overrides"}


class pi_input(_Struct):
    _fields_ = [("session", POINTER(pi_session)), ("tokens", POINTER(c_int32)),
                ("n_tokens", c_int32), ("logits", c_int), ("hidden", c_int), ("n_drafts", c_int32),
                ("features", POINTER(c_float))]
    _enums_ = {"logits": pi_logits_wanted, "hidden": pi_hidden_wanted}
    _counts_ = {"tokens": "n_tokens"}


class pi_counters(_Struct):
    _fields_ = [("ubatches", c_uint64), ("tokens", c_uint64), ("weight_bytes", c_uint64),
                ("ffn_bytes", c_uint64), ("ffn_total_bytes", c_uint64),
                ("gathered_bytes", c_uint64), ("kv_bytes", c_uint64), ("expert_swaps", c_uint64),
                ("neuron_swaps", c_uint64), ("neuron_swap_bytes", c_uint64),
                ("active_neurons", c_uint64), ("active_gpu_neurons", c_uint64)]


class pi_stop_text(_Struct):
    _fields_ = [("text", c_char_p), ("n_bytes", c_size_t)]
    _counts_ = {"text": "n_bytes"}

pi_piece = CFUNCTYPE(c_bool, c_void_p, c_int32, c_void_p, c_size_t)


class pi_generate_options(_Struct):
    _fields_ = [("prompt", c_char_p), ("tokens", POINTER(c_int32)), ("n_tokens", c_int32),
                ("sampler", POINTER(pi_sampler)), ("max_tokens", c_int32),
                ("stops", POINTER(pi_stop_text)), ("n_stops", c_size_t), ("keep_stop", c_bool),
                ("shift", c_bool), ("n_keep", c_int32), ("speculator", POINTER(pi_speculator)),
                ("piece", pi_piece), ("progress", pi_progress), ("user", c_void_p)]
    _counts_ = {"tokens": "n_tokens", "stops": "n_stops"}


class pi_generated(_Struct):
    _fields_ = [("stop", c_int), ("session_full", c_bool), ("n_prompt", c_int32),
                ("n_cached", c_int32), ("n_tokens", c_int32), ("n_decoded", c_int32),
                ("n_steps", c_int32), ("n_shifts", c_int32), ("n_drafted", c_uint64),
                ("n_accepted", c_uint64), ("prompt_seconds", c_double),
                ("decode_seconds", c_double), ("draft_error", pi_error)]
    _enums_ = {"stop": pi_stop}


class pi_chat_template_options(_Struct):
    _fields_ = [("source", c_char_p), ("n_source", c_size_t), ("name", c_char_p), ("bos", c_char_p),
                ("eos", c_char_p), ("seconds", c_double)]
    _counts_ = {"source": "n_source"}


class pi_embed_text(_Struct):
    _fields_ = [("tokens", POINTER(c_int32)), ("n_tokens", c_int32)]
    _counts_ = {"tokens": "n_tokens"}


class pi_generation_options(_Struct):
    _fields_ = [("sampler", POINTER(pi_sampler)), ("max_tokens", c_int32),
                ("stops", POINTER(pi_stop_text)), ("n_stops", c_size_t), ("keep_stop", c_bool),
                ("visible", POINTER(c_int32)), ("n_visible", c_size_t)]
    _counts_ = {"stops": "n_stops", "visible": "n_visible"}


class pi_sampled(_Struct):
    _fields_ = [("token", c_int32), ("end", c_bool), ("complete", c_bool)]


class pi_released(_Struct):
    _fields_ = [("text", c_void_p), ("n_bytes", c_size_t), ("n_total", c_size_t), ("stop", c_int),
                ("stop_text", c_int32)]
    _enums_ = {"stop": pi_stop}
    _counts_ = {"text": "n_bytes"}


class pi_speculator_options(_Struct):
    _fields_ = [("model", POINTER(pi_model)), ("ngrams", c_bool),
                ("draft_model", POINTER(pi_model)), ("draft_context", POINTER(pi_context)),
                ("chain", POINTER(POINTER(pi_context))), ("n_chain", c_int32), ("n_texts", c_int32),
                ("n_ctx", c_int32), ("n_max", c_int32), ("n_min", c_int32), ("p_min", c_float),
                ("n_piece", c_int32)]
    _counts_ = {"chain": "n_chain"}


class pi_draft(_Struct):
    _fields_ = [("text", c_int32), ("room", c_int32), ("n_again", c_int32),
                ("session", POINTER(pi_session)), ("n", c_int32), ("tokens", POINTER(c_int32))]


class pi_draft_counts(_Struct):
    _fields_ = [("drafted", c_uint64), ("accepted", c_uint64)]

pi_message = CFUNCTYPE(None, c_void_p, c_char_p)


class pi_convert_options(_Struct):
    _fields_ = [("type", c_char_p), ("n_threads", c_int32), ("progress", pi_progress),
                ("message", pi_message), ("user", c_void_p), ("base", c_char_p),
                ("predictors", c_char_p)]


class pi_tensor_type(_Struct):
    _fields_ = [("pattern", c_char_p), ("type", c_char_p)]


class pi_quantize_tensor(_Struct):
    _fields_ = [("name", c_char * 64), ("from", c_char_p), ("to", c_char_p), ("n_elems", c_uint64),
                ("bytes_in", c_uint64), ("bytes_out", c_uint64), ("fallback", c_bool),
                ("relative_rmse", c_float)]

pi_quantize_options_tensor = CFUNCTYPE(None, c_void_p, POINTER(pi_quantize_tensor))


class pi_quantize_options(_Struct):
    _fields_ = [("type", c_char_p), ("pure", c_bool), ("allow_requantize", c_bool),
                ("leave_output", c_bool), ("output_type", c_char_p), ("embedding_type", c_char_p),
                ("tensor_types", POINTER(pi_tensor_type)), ("n_tensor_types", c_size_t),
                ("imatrix", c_char_p), ("chat_template", c_char_p), ("n_chat_template", c_size_t),
                ("measure", c_bool), ("dry_run", c_bool), ("n_threads", c_int32),
                ("tensor", pi_quantize_options_tensor), ("progress", pi_progress),
                ("message", pi_message), ("user", c_void_p)]
    _counts_ = {"tensor_types": "n_tensor_types", "chat_template": "n_chat_template"}


class pi_quantize_result(_Struct):
    _fields_ = [("n_tensors", c_uint64), ("n_quantized", c_uint64), ("n_fallback", c_uint64),
                ("n_elems", c_uint64), ("bytes_in", c_uint64), ("bytes_out", c_uint64)]


class pi_imatrix_options(_Struct):
    _fields_ = [("chunk", c_int32), ("n_chunks", c_int32), ("process_output", c_bool),
                ("n_threads", c_int32), ("progress", pi_progress), ("message", pi_message),
                ("user", c_void_p)]


class pi_prepare_layer(_Struct):
    _fields_ = [("density", c_double), ("kind", c_char_p), ("rank", c_int32), ("recall", c_double),
                ("contribution_recall", c_double), ("selected", c_double), ("down", c_double)]

pi_prepare_options_layer = CFUNCTYPE(None, c_void_p, c_int32, POINTER(pi_prepare_layer))


class pi_prepare_options(_Struct):
    _fields_ = [("calibration", c_char_p), ("calibration_tokens", c_int32),
                ("calibration_window", c_int32), ("type", c_char_p), ("down_type", c_char_p),
                ("predictor", c_char_p), ("predictor_type", c_char_p), ("recall", c_double),
                ("max_loss", c_double), ("head", c_bool), ("seed", c_uint64), ("bundles", c_int),
                ("rearrange", c_bool), ("beside", c_char_p), ("n_threads", c_int32),
                ("layer", pi_prepare_options_layer), ("progress", pi_progress),
                ("message", pi_message), ("user", c_void_p)]
    _enums_ = {"bundles": pi_bundles}


class pi_prepare_result(_Struct):
    _fields_ = [("mode", c_char_p), ("tokens", c_int64), ("held_out", c_int64),
                ("density", c_double), ("ppl_before", c_double), ("ppl_after", c_double),
                ("kl", c_double), ("head_rank", c_int32), ("head_rows", c_double),
                ("head_bytes", c_double), ("head_loss", c_double), ("head_same", c_double),
                ("bytes_in", c_uint64), ("bytes_out", c_uint64), ("predictor_bytes", c_uint64)]


class pi_tune_trial(_Struct):
    _fields_ = [("prepared", c_bool), ("mode", c_char_p), ("head", c_bool), ("threads", c_int32),
                ("attn_blocks", c_int32), ("tps", c_double), ("rounds", c_int32),
                ("bytes_per_token", c_double), ("loss", c_double), ("chosen", c_bool),
                ("reason", c_char * 128)]

pi_tune_options_trial = CFUNCTYPE(None, c_void_p, POINTER(pi_tune_trial))


class pi_tune_options(_Struct):
    _fields_ = [("context", pi_context_options), ("calibration", c_char_p),
                ("calibration_tokens", c_int32), ("max_loss", c_double), ("n_ctx", c_int32),
                ("trial", pi_tune_options_trial), ("progress", pi_progress),
                ("message", pi_message), ("user", c_void_p)]


class pi_tune_result(_Struct):
    _fields_ = [("cpu", c_char * 128), ("before", pi_tune_trial), ("after", pi_tune_trial)]


class pi_synth_options(_Struct):
    _fields_ = [("shape", c_char_p), ("type", c_char_p), ("n_layer", c_int32), ("density", c_float),
                ("down_density", c_float), ("skew_share", c_float), ("skew_mass", c_float),
                ("rank", c_int32), ("seed", c_uint64), ("plain", c_bool), ("bundle", c_bool),
                ("n_mtp", c_int32), ("n_threads", c_int32), ("progress", pi_progress),
                ("user", c_void_p)]


class pi_inspect_options(_Struct):
    _fields_ = [("json", c_bool), ("verbose", c_bool), ("plan", c_bool),
                ("context", POINTER(pi_context_options)), ("svg", c_char_p)]


class pi_place_options(_Struct):
    _fields_ = [("profile", c_char_p), ("device", c_int), ("n_devices", c_int32),
                ("devices", c_int32 * 8), ("tensor_split", c_float * 8),
                ("backend_folder", c_char_p), ("measure", c_bool), ("cache", c_char_p),
                ("vram_budget", c_uint64), ("ram_budget", c_uint64),
                ("overrides", POINTER(c_char_p)), ("n_overrides", c_int32),
                ("cpu_experts", c_int32), ("cpu_ffn", c_int32), ("mode", c_int),
                ("max_loss", c_float), ("n_ctx", c_int32), ("depth", c_int32), ("n_batch", c_int32),
                ("max_batch", c_int32), ("cache_k", c_int), ("cache_v", c_int),
                ("n_threads", c_int32), ("synth", POINTER(pi_synth_options)), ("density", c_double),
                ("json", c_bool), ("svg", c_char_p), ("message", pi_message), ("user", c_void_p)]
    _enums_ = {"device": pi_device_choice, "mode": pi_mode, "cache_k": pi_cache_type,
              "cache_v": pi_cache_type}
    _counts_ = {"overrides": "n_overrides"}


class pi_template_options(_Struct):
    _fields_ = [("model", c_char_p), ("source", c_char_p), ("n_source", c_size_t),
                ("name", c_char_p), ("bos", c_char_p), ("eos", c_char_p), ("now", POINTER(tm))]
    _counts_ = {"source": "n_source"}


class pi_device_failure(_Struct):
    _fields_ = [("call", c_char * 64), ("error", c_char * 256)]


class pi_device(_Struct):
    _fields_ = [("backend", c_char * 16), ("index", c_int32), ("available", c_bool),
                ("shared_memory", c_bool), ("name", c_char * 128), ("arch", c_char * 32),
                ("memory_total", c_uint64), ("memory_free", c_uint64), ("bandwidth", c_double),
                ("reason", c_char * 512), ("driver", c_char * 48), ("measured_stream", c_double),
                ("measured_gather", c_double), ("measured_step", c_double),
                ("measured_sync", c_double), ("n_failures", c_int32),
                ("failures", pi_device_failure * 4)]


class pi_trace_summary(_Struct):
    _fields_ = [("n_tokens", c_int32), ("seconds", c_double), ("cpu_seconds", c_double),
                ("gpu_seconds", c_double), ("both_seconds", c_double), ("overlap", c_double),
                ("n_split", c_int32), ("split_overlap", c_double), ("exchange_seconds", c_double),
                ("clock_error", c_double)]


class pi_bench_options(_Struct):
    _fields_ = [("context", pi_context_options), ("prompts", c_int32 * 32), ("n_prompts", c_int32),
                ("gens", c_int32 * 32), ("n_gens", c_int32), ("depths", c_int32 * 32),
                ("n_depths", c_int32), ("parallels", c_int32 * 32), ("n_parallels", c_int32),
                ("repetitions", c_int32), ("delay_seconds", c_int32), ("tokens", POINTER(c_int32)),
                ("n_tokens", c_int32), ("speculator", POINTER(pi_speculator)), ("drafts", c_char_p),
                ("temp", c_float), ("seed", c_uint64), ("model_path", c_char_p),
                ("trace", c_char_p), ("progress", pi_progress), ("user", c_void_p)]
    _counts_ = {"tokens": "n_tokens"}


class pi_bench_result(_Struct):
    _fields_ = [("test", c_char * 16), ("depth", c_int32), ("parallel", c_int32),
                ("mode", c_char_p), ("device", c_char_p), ("tps", c_double), ("tps_min", c_double),
                ("tps_max", c_double), ("tps_stddev", c_double), ("bytes_per_token", c_double),
                ("gathered_per_token", c_double), ("gbps", c_double), ("read_gbps", c_double),
                ("gather_gbps", c_double), ("bandwidth_share", c_double), ("floor_share", c_double),
                ("ffn_density", c_double), ("drive_reads", c_double), ("drive_bytes", c_double),
                ("drive_gbps", c_double), ("drive_share", c_double), ("drive_busy", c_double),
                ("cache_hits", c_double), ("cache_misses", c_double), ("drive_ahead", c_double),
                ("drive_in_vain", c_double), ("drafts", c_char_p), ("tokens_per_step", c_double),
                ("speedup", c_double), ("n_drafted", c_uint64), ("n_accepted", c_uint64)]


class pi_bench_report(_Struct):
    _fields_ = [("cpu", c_char * 128), ("threads", c_int32), ("n_batch", c_int32),
                ("read_gbps", c_double), ("gather_gbps", c_double), ("yardstick_bytes", c_uint64),
                ("yardstick_wanted", c_uint64), ("cache_bytes", c_uint64), ("in_cache", c_bool),
                ("memory", pi_memory), ("n_ranks", c_int32), ("ranks", pi_rank * 64),
                ("n_traced", c_int32), ("traced", pi_trace_summary * 2), ("n_results", c_int32),
                ("results", pi_bench_result * 2048)]


class pi_perplexity_options(_Struct):
    _fields_ = [("context", pi_context_options), ("n_ctx", c_int32), ("n_windows", c_int32),
                ("llama_windows", c_bool), ("stride", c_int32), ("base_out", c_char_p),
                ("base_in", c_char_p), ("progress", pi_progress), ("message", pi_message),
                ("user", c_void_p)]


class pi_divergence(_Struct):
    _fields_ = [("mean", c_double), ("mean_stderr", c_double), ("median", c_double),
                ("p90", c_double), ("p95", c_double), ("p99", c_double), ("p99_9", c_double),
                ("max", c_double), ("top1", c_double), ("p_diff_mean", c_double),
                ("p_diff_rms", c_double), ("base_nll", c_double), ("base_perplexity", c_double)]


class pi_perplexity_report(_Struct):
    _fields_ = [("n_ctx", c_int32), ("n_windows", c_int32), ("tokens", c_int64), ("nll", c_double),
                ("perplexity", c_double), ("perplexity_stderr", c_double),
                ("has_divergence", c_bool), ("divergence", pi_divergence)]


@dataclass(frozen=True)
class LayerActivity:
    kind: "pi_activity_kind"
    n_units: "int"
    n_hot: "int"
    hot: "int"
    bins: "List[int]"


class ClusterOptions(TypedDict, total=False):
    timeout: "float"
    settings: "Text"
    split: "Sequence[float]"
    n_split: "int"
    lost: "Callable[..., Any]"
    give_up: "Callable[..., Any]"


@dataclass(frozen=True)
class Rank:
    host: "Optional[str]"
    first_layer: "int"
    end_layer: "int"
    weight_bytes: "int"
    predicted_seconds: "float"
    computing: "float"
    waiting: "float"
    sending: "float"
    sent_bytes: "int"
    ubatches: "int"


class GrammarSchema(TypedDict, total=False):
    rule: "Text"
    schema: "Text"
    widen: "bool"
    name: "Text"
    path: "Text"


class GrammarOptions(TypedDict, total=False):
    root: "Text"
    schemas: "Sequence[GrammarSchema]"
    trigger_words: "Sequence[Text]"
    trigger_tokens: "Sequence[int]"


@dataclass(frozen=True)
class Memory:
    budget: "int"
    needed: "int"
    buffers: "int"
    always: "int"
    pinned: "int"
    ring: "int"
    cache: "int"
    streamed: "int"
    cached: "int"
    reads: "int"
    read_bytes: "int"
    read_seconds: "float"
    hits: "int"
    misses: "int"
    ahead: "int"
    in_vain: "int"
    backend: "Optional[str]"


class MetadataOverride(TypedDict, total=False):
    key: "Text"
    type: "int"
    integer: "int"
    number: "float"
    truth: "bool"
    text: "Text"


class Adapter(TypedDict, total=False):
    path: "Text"
    scale: "float"


@dataclass(frozen=True)
class Placement:
    device: "Optional[str]"
    device_name: "Optional[str]"
    n_devices: "int"
    reason: "Optional[str]"
    status: "pi_status"
    n_layers: "int"
    gpu_layers: "int"
    head_on_gpu: "bool"
    neuron_share: "float"
    gpu_weights: "int"
    gpu_scratch: "int"
    gpu_kv: "int"
    gpu_programs: "int"
    gpu_runtime: "int"
    gpu_budget: "int"


@dataclass(frozen=True)
class DevicePlacement:
    name: "Optional[str]"
    index: "int"
    first_layer: "int"
    end_layer: "int"
    bytes: "int"
    budget: "int"


@dataclass(frozen=True)
class LayerPlacement:
    attention_on_gpu: "bool"
    device: "int"
    n_hot: "int"
    n_neurons: "int"
    n_own: "int"


class LogitBias(TypedDict, total=False):
    token: "int"
    bias: "float"


class SamplerOptions(TypedDict, total=False):
    samplers: "Sequence[int]"
    temp: "float"
    dynatemp_range: "float"
    dynatemp_exponent: "float"
    top_k: "int"
    top_p: "float"
    min_p: "float"
    typical_p: "float"
    top_n_sigma: "float"
    repeat_penalty: "float"
    repeat_last_n: "int"
    presence_penalty: "float"
    frequency_penalty: "float"
    xtc_probability: "float"
    xtc_threshold: "float"
    dry_multiplier: "float"
    dry_base: "float"
    dry_allowed_length: "int"
    dry_last_n: "int"
    dry_breakers: "Sequence[Text]"
    mirostat: "int"
    mirostat_tau: "float"
    mirostat_eta: "float"
    logit_bias: "Sequence[LogitBias]"
    ignore_eos: "bool"
    seed: "int"
    grammar: "Grammar"


class SessionRange(TypedDict, total=False):
    data: "bytes"
    n_tokens: "int"


class ModelOptions(TypedDict, total=False):
    no_mmap: "bool"
    mlock: "bool"
    vocab_only: "bool"
    check_tensors: "bool"
    pre: "Text"
    overrides: "Sequence[MetadataOverride]"
    adapters: "Sequence[Adapter]"
    adapters_by_context: "bool"
    progress: "Progress"


@dataclass(frozen=True)
class ModelInfo:
    name: "Optional[str]"
    architecture: "Optional[str]"
    type: "Optional[str]"
    n_layer: "int"
    n_embd: "int"
    n_vocab: "int"
    n_ff: "int"
    n_head: "int"
    n_head_kv: "int"
    n_ctx_train: "int"
    n_params: "int"
    weight_bytes: "int"
    has_tokenizer: "bool"
    token_bos: "int"
    token_eos: "int"
    add_bos: "bool"
    recurrent: "bool"
    n_draft_layer: "int"
    is_drafter: "bool"
    n_features: "int"


class ContextOptions(TypedDict, total=False):
    n_threads: "int"
    n_threads_batch: "int"
    pin_threads: "bool"
    n_batch: "int"
    max_batch: "int"
    n_logits: "int"
    kernels: "int"
    mode: "int"
    head: "int"
    max_loss: "float"
    threshold: "float"
    cache_k: "int"
    cache_v: "int"
    attn_blocks: "int"
    device: "int"
    n_devices: "int"
    devices: "Sequence[int]"
    tensor_split: "Sequence[float]"
    vram_budget: "int"
    gpu_layers: "int"
    n_ctx: "int"
    ram_budget: "int"
    expert_slack: "float"
    backend_folder: "Text"
    machine: "Text"
    adapt: "bool"
    overrides: "Sequence[Text]"
    cpu_experts: "int"
    cpu_ffn: "int"
    cluster: "Cluster"
    deterministic: "bool"
    timed_forms: "bool"
    drafter: "Model"
    cache_folder: "Text"


class Input(TypedDict, total=False):
    session: "Session"
    tokens: "Sequence[int]"
    logits: "int"
    hidden: "int"
    n_drafts: "int"
    features: "Sequence[float]"


@dataclass(frozen=True)
class Counters:
    ubatches: "int"
    tokens: "int"
    weight_bytes: "int"
    ffn_bytes: "int"
    ffn_total_bytes: "int"
    gathered_bytes: "int"
    kv_bytes: "int"
    expert_swaps: "int"
    neuron_swaps: "int"
    neuron_swap_bytes: "int"
    active_neurons: "int"
    active_gpu_neurons: "int"


class StopText(TypedDict, total=False):
    text: "Text"


class GenerateOptions(TypedDict, total=False):
    prompt: "Text"
    tokens: "Sequence[int]"
    sampler: "Sampler"
    max_tokens: "int"
    stops: "Sequence[Union[StopText, Text]]"
    keep_stop: "bool"
    shift: "bool"
    n_keep: "int"
    speculator: "Speculator"
    piece: "Piece"
    progress: "Progress"


@dataclass(frozen=True)
class Generated:
    stop: "pi_stop"
    session_full: "bool"
    n_prompt: "int"
    n_cached: "int"
    n_tokens: "int"
    n_decoded: "int"
    n_steps: "int"
    n_shifts: "int"
    n_drafted: "int"
    n_accepted: "int"
    prompt_seconds: "float"
    decode_seconds: "float"
    draft_error: "Optional[Error]"


class ChatTemplateOptions(TypedDict, total=False):
    source: "Text"
    name: "Text"
    bos: "Text"
    eos: "Text"
    seconds: "float"


class EmbedText(TypedDict, total=False):
    tokens: "Sequence[int]"


class GenerationOptions(TypedDict, total=False):
    sampler: "Sampler"
    max_tokens: "int"
    stops: "Sequence[Union[StopText, Text]]"
    keep_stop: "bool"
    visible: "Sequence[int]"


@dataclass(frozen=True)
class Sampled:
    token: "int"
    end: "bool"
    complete: "bool"


class SpeculatorOptions(TypedDict, total=False):
    model: "Model"
    ngrams: "bool"
    draft_model: "Model"
    draft_context: "Context"
    chain: "Sequence[Context]"
    n_texts: "int"
    n_ctx: "int"
    n_max: "int"
    n_min: "int"
    p_min: "float"
    n_piece: "int"


class Draft(TypedDict, total=False):
    text: "int"
    room: "int"
    n_again: "int"
    session: "Session"
    n: "int"
    tokens: "Sequence[int]"


@dataclass(frozen=True)
class DraftCounts:
    drafted: "int"
    accepted: "int"


class ConvertOptions(TypedDict, total=False):
    type: "Text"
    n_threads: "int"
    progress: "Progress"
    message: "Message"
    base: "Text"
    predictors: "Text"


class TensorType(TypedDict, total=False):
    pattern: "Text"
    type: "Text"


@dataclass(frozen=True)
class QuantizeTensor:
    name: "str"
    from_: "Optional[str]"
    to: "Optional[str]"
    n_elems: "int"
    bytes_in: "int"
    bytes_out: "int"
    fallback: "bool"
    relative_rmse: "float"


class QuantizeOptions(TypedDict, total=False):
    type: "Text"
    pure: "bool"
    allow_requantize: "bool"
    leave_output: "bool"
    output_type: "Text"
    embedding_type: "Text"
    tensor_types: "Sequence[TensorType]"
    imatrix: "Text"
    chat_template: "Text"
    measure: "bool"
    dry_run: "bool"
    n_threads: "int"
    tensor: "Callable[..., Any]"
    progress: "Progress"
    message: "Message"


@dataclass(frozen=True)
class QuantizeResult:
    n_tensors: "int"
    n_quantized: "int"
    n_fallback: "int"
    n_elems: "int"
    bytes_in: "int"
    bytes_out: "int"


class ImatrixOptions(TypedDict, total=False):
    chunk: "int"
    n_chunks: "int"
    process_output: "bool"
    n_threads: "int"
    progress: "Progress"
    message: "Message"


@dataclass(frozen=True)
class PrepareLayer:
    density: "float"
    kind: "Optional[str]"
    rank: "int"
    recall: "float"
    contribution_recall: "float"
    selected: "float"
    down: "float"


class PrepareOptions(TypedDict, total=False):
    calibration: "Text"
    calibration_tokens: "int"
    calibration_window: "int"
    type: "Text"
    down_type: "Text"
    predictor: "Text"
    predictor_type: "Text"
    recall: "float"
    max_loss: "float"
    head: "bool"
    seed: "int"
    bundles: "int"
    rearrange: "bool"
    beside: "Text"
    n_threads: "int"
    layer: "Callable[..., Any]"
    progress: "Progress"
    message: "Message"


@dataclass(frozen=True)
class PrepareResult:
    mode: "Optional[str]"
    tokens: "int"
    held_out: "int"
    density: "float"
    ppl_before: "float"
    ppl_after: "float"
    kl: "float"
    head_rank: "int"
    head_rows: "float"
    head_bytes: "float"
    head_loss: "float"
    head_same: "float"
    bytes_in: "int"
    bytes_out: "int"
    predictor_bytes: "int"


@dataclass(frozen=True)
class TuneTrial:
    prepared: "bool"
    mode: "Optional[str]"
    head: "bool"
    threads: "int"
    attn_blocks: "int"
    tps: "float"
    rounds: "int"
    bytes_per_token: "float"
    loss: "float"
    chosen: "bool"
    reason: "str"


class TuneOptions(TypedDict, total=False):
    context: "ContextOptions"
    calibration: "Text"
    calibration_tokens: "int"
    max_loss: "float"
    n_ctx: "int"
    trial: "Callable[..., Any]"
    progress: "Progress"
    message: "Message"


@dataclass(frozen=True)
class TuneResult:
    cpu: "str"
    before: "TuneTrial"
    after: "TuneTrial"


class SynthOptions(TypedDict, total=False):
    shape: "Text"
    type: "Text"
    n_layer: "int"
    density: "float"
    down_density: "float"
    skew_share: "float"
    skew_mass: "float"
    rank: "int"
    seed: "int"
    plain: "bool"
    bundle: "bool"
    n_mtp: "int"
    n_threads: "int"
    progress: "Progress"


class InspectOptions(TypedDict, total=False):
    json: "bool"
    verbose: "bool"
    plan: "bool"
    context: "ContextOptions"
    svg: "Text"


class PlaceOptions(TypedDict, total=False):
    profile: "Text"
    device: "int"
    n_devices: "int"
    devices: "Sequence[int]"
    tensor_split: "Sequence[float]"
    backend_folder: "Text"
    measure: "bool"
    cache: "Text"
    vram_budget: "int"
    ram_budget: "int"
    overrides: "Sequence[Text]"
    cpu_experts: "int"
    cpu_ffn: "int"
    mode: "int"
    max_loss: "float"
    n_ctx: "int"
    depth: "int"
    n_batch: "int"
    max_batch: "int"
    cache_k: "int"
    cache_v: "int"
    n_threads: "int"
    synth: "SynthOptions"
    density: "float"
    json: "bool"
    svg: "Text"
    message: "Message"


class TemplateOptions(TypedDict, total=False):
    model: "Text"
    source: "Text"
    name: "Text"
    bos: "Text"
    eos: "Text"
    now: "Time"


@dataclass(frozen=True)
class DeviceFailure:
    call: "str"
    error: "str"


@dataclass(frozen=True)
class Device:
    backend: "str"
    index: "int"
    available: "bool"
    shared_memory: "bool"
    name: "str"
    arch: "str"
    memory_total: "int"
    memory_free: "int"
    bandwidth: "float"
    reason: "str"
    driver: "str"
    measured_stream: "float"
    measured_gather: "float"
    measured_step: "float"
    measured_sync: "float"
    n_failures: "int"
    failures: "List[DeviceFailure]"


@dataclass(frozen=True)
class TraceSummary:
    n_tokens: "int"
    seconds: "float"
    cpu_seconds: "float"
    gpu_seconds: "float"
    both_seconds: "float"
    overlap: "float"
    n_split: "int"
    split_overlap: "float"
    exchange_seconds: "float"
    clock_error: "float"


class BenchOptions(TypedDict, total=False):
    context: "ContextOptions"
    prompts: "Sequence[int]"
    n_prompts: "int"
    gens: "Sequence[int]"
    n_gens: "int"
    depths: "Sequence[int]"
    n_depths: "int"
    parallels: "Sequence[int]"
    n_parallels: "int"
    repetitions: "int"
    delay_seconds: "int"
    tokens: "Sequence[int]"
    speculator: "Speculator"
    drafts: "Text"
    temp: "float"
    seed: "int"
    model_path: "Text"
    trace: "Text"
    progress: "Progress"


@dataclass(frozen=True)
class BenchResult:
    test: "str"
    depth: "int"
    parallel: "int"
    mode: "Optional[str]"
    device: "Optional[str]"
    tps: "float"
    tps_min: "float"
    tps_max: "float"
    tps_stddev: "float"
    bytes_per_token: "float"
    gathered_per_token: "float"
    gbps: "float"
    read_gbps: "float"
    gather_gbps: "float"
    bandwidth_share: "float"
    floor_share: "float"
    ffn_density: "float"
    drive_reads: "float"
    drive_bytes: "float"
    drive_gbps: "float"
    drive_share: "float"
    drive_busy: "float"
    cache_hits: "float"
    cache_misses: "float"
    drive_ahead: "float"
    drive_in_vain: "float"
    drafts: "Optional[str]"
    tokens_per_step: "float"
    speedup: "float"
    n_drafted: "int"
    n_accepted: "int"


@dataclass(frozen=True)
class BenchReport:
    cpu: "str"
    threads: "int"
    n_batch: "int"
    read_gbps: "float"
    gather_gbps: "float"
    yardstick_bytes: "int"
    yardstick_wanted: "int"
    cache_bytes: "int"
    in_cache: "bool"
    memory: "Memory"
    n_ranks: "int"
    ranks: "List[Rank]"
    n_traced: "int"
    traced: "List[TraceSummary]"
    n_results: "int"
    results: "List[BenchResult]"


class PerplexityOptions(TypedDict, total=False):
    context: "ContextOptions"
    n_ctx: "int"
    n_windows: "int"
    llama_windows: "bool"
    stride: "int"
    base_out: "Text"
    base_in: "Text"
    progress: "Progress"
    message: "Message"


@dataclass(frozen=True)
class Divergence:
    mean: "float"
    mean_stderr: "float"
    median: "float"
    p90: "float"
    p95: "float"
    p99: "float"
    p99_9: "float"
    max: "float"
    top1: "float"
    p_diff_mean: "float"
    p_diff_rms: "float"
    base_nll: "float"
    base_perplexity: "float"


@dataclass(frozen=True)
class PerplexityReport:
    n_ctx: "int"
    n_windows: "int"
    tokens: "int"
    nll: "float"
    perplexity: "float"
    perplexity_stderr: "float"
    has_divergence: "bool"
    divergence: "Divergence"


_RESULTS: Dict[Any, Any] = {pi_layer_activity: LayerActivity, pi_rank: Rank, pi_memory: Memory,
    pi_placement: Placement, pi_device_placement: DevicePlacement,
    pi_layer_placement: LayerPlacement, pi_model_info: ModelInfo, pi_counters: Counters,
    pi_generated: Generated, pi_sampled: Sampled, pi_draft_counts: DraftCounts,
    pi_quantize_tensor: QuantizeTensor, pi_quantize_result: QuantizeResult,
    pi_prepare_layer: PrepareLayer, pi_prepare_result: PrepareResult, pi_tune_trial: TuneTrial,
    pi_tune_result: TuneResult, pi_device_failure: DeviceFailure, pi_device: Device,
    pi_trace_summary: TraceSummary, pi_bench_result: BenchResult, pi_bench_report: BenchReport,
    pi_divergence: Divergence, pi_perplexity_report: PerplexityReport}


_library = _load("%d.%d" % (PI_VERSION_MAJOR, PI_VERSION_MINOR))


def _declare(name: str, result: Any, *parameters: Any) -> Any:
    function = getattr(_library, name)
    function.restype, function.argtypes = result, parameters
    return function


pi_status_name = _declare("pi_status_name", c_char_p, c_int)
pi_status_text = _declare("pi_status_text", c_char_p, c_int)
pi_context_watch = _declare("pi_context_watch", c_int, POINTER(pi_context), c_int32,
    POINTER(pi_error))
pi_context_watched = _declare("pi_context_watched", c_uint64, POINTER(pi_context))
pi_context_get_activity = _declare("pi_context_get_activity", None, POINTER(pi_context), c_int32,
    POINTER(pi_layer_activity))
pi_cluster_default_options = _declare("pi_cluster_default_options", pi_cluster_options)
pi_cluster_open = _declare("pi_cluster_open", c_int, POINTER(pi_cluster_options),
    POINTER(POINTER(pi_cluster)), POINTER(pi_error))
pi_cluster_close = _declare("pi_cluster_close", None, POINTER(pi_cluster))
pi_cluster_fail = _declare("pi_cluster_fail", None, POINTER(pi_cluster))
pi_cluster_rank = _declare("pi_cluster_rank", c_int32, POINTER(pi_cluster))
pi_cluster_size = _declare("pi_cluster_size", c_int32, POINTER(pi_cluster))
pi_cluster_receive = _declare("pi_cluster_receive", c_int, POINTER(pi_cluster), c_char_p,
    POINTER(pi_model_options), POINTER(POINTER(pi_model)), POINTER(pi_error))
pi_cluster_work = _declare("pi_cluster_work", c_int, POINTER(pi_cluster), POINTER(pi_model),
    POINTER(pi_context_options), POINTER(pi_error))
pi_context_ranks = _declare("pi_context_ranks", c_int32, POINTER(pi_context))
pi_context_get_ranks = _declare("pi_context_get_ranks", c_int, POINTER(pi_context),
    POINTER(pi_rank), POINTER(pi_error))
pi_grammar_create = _declare("pi_grammar_create", c_int, POINTER(pi_model), c_char_p, c_size_t,
    POINTER(pi_grammar_options), POINTER(POINTER(pi_grammar)), POINTER(pi_error))
pi_grammar_from_schema = _declare("pi_grammar_from_schema", c_int, POINTER(pi_model), c_char_p,
    c_size_t, POINTER(POINTER(pi_grammar)), POINTER(pi_error))
pi_grammar_free = _declare("pi_grammar_free", None, POINTER(pi_grammar))
pi_grammar_retain = _declare("pi_grammar_retain", POINTER(pi_grammar), POINTER(pi_grammar))
pi_grammar_memory = _declare("pi_grammar_memory", c_size_t, POINTER(pi_grammar))
pi_grammar_widened = _declare("pi_grammar_widened", c_char_p, POINTER(pi_grammar), c_size_t)
pi_grammar_match = _declare("pi_grammar_match", c_int, POINTER(pi_grammar), c_char_p, c_size_t,
    POINTER(c_bool), POINTER(c_bool), POINTER(pi_error))
pi_sampler_grammar_progress = _declare("pi_sampler_grammar_progress", c_int, POINTER(pi_sampler),
    POINTER(pi_error))
pi_sampler_grammar_restart = _declare("pi_sampler_grammar_restart", None, POINTER(pi_sampler))
pi_context_get_memory = _declare("pi_context_get_memory", None, POINTER(pi_context),
    POINTER(pi_memory))
pi_context_measure_drive = _declare("pi_context_measure_drive", c_int, POINTER(pi_context),
    c_uint64, c_double, POINTER(c_double), POINTER(pi_error))
pi_model_n_metadata = _declare("pi_model_n_metadata", c_size_t, POINTER(pi_model))
pi_model_metadata_key = _declare("pi_model_metadata_key", c_int, POINTER(pi_model), c_size_t,
    POINTER(c_char), c_size_t, POINTER(c_size_t), POINTER(pi_error))
pi_model_metadata = _declare("pi_model_metadata", c_int, POINTER(pi_model), c_char_p,
    POINTER(c_char), c_size_t, POINTER(c_size_t), POINTER(pi_error))
pi_model_token = _declare("pi_model_token", c_int32, POINTER(pi_model), c_int)
pi_context_get_placement = _declare("pi_context_get_placement", None, POINTER(pi_context),
    POINTER(pi_placement))
pi_context_get_device = _declare("pi_context_get_device", None, POINTER(pi_context), c_int32,
    POINTER(pi_device_placement))
pi_context_get_layer = _declare("pi_context_get_layer", None, POINTER(pi_context), c_int32,
    POINTER(pi_layer_placement))
pi_sampler_default_options = _declare("pi_sampler_default_options", pi_sampler_options)
pi_sampler_create = _declare("pi_sampler_create", c_int, POINTER(pi_model),
    POINTER(pi_sampler_options), POINTER(POINTER(pi_sampler)), POINTER(pi_error))
pi_sampler_destroy = _declare("pi_sampler_destroy", None, POINTER(pi_sampler))
pi_sampler_accept = _declare("pi_sampler_accept", None, POINTER(pi_sampler), c_int32)
pi_sampler_sample = _declare("pi_sampler_sample", c_int32, POINTER(pi_sampler), POINTER(c_float))
pi_sampler_seed = _declare("pi_sampler_seed", c_uint64, POINTER(pi_sampler))
pi_session_create = _declare("pi_session_create", c_int, POINTER(pi_context), c_int32,
    POINTER(POINTER(pi_session)), POINTER(pi_error))
pi_session_destroy = _declare("pi_session_destroy", None, POINTER(pi_session))
pi_session_length = _declare("pi_session_length", c_int32, POINTER(pi_session))
pi_session_capacity = _declare("pi_session_capacity", c_int32, POINTER(pi_session))
pi_session_rewind = _declare("pi_session_rewind", c_int, POINTER(pi_session), c_int32,
    POINTER(pi_error))
pi_session_rewind_point = _declare("pi_session_rewind_point", c_int32, POINTER(pi_session), c_int32)
pi_session_remove = _declare("pi_session_remove", c_int, POINTER(pi_session), c_int32, c_int32,
    POINTER(pi_error))
pi_session_copy = _declare("pi_session_copy", c_int, POINTER(pi_session), POINTER(pi_session),
    c_int32, POINTER(pi_error))
pi_session_save = _declare("pi_session_save", c_int, POINTER(pi_session), c_char_p,
    POINTER(c_int32), c_int32, POINTER(pi_error))
pi_session_load = _declare("pi_session_load", c_int, POINTER(pi_session), c_char_p,
    POINTER(c_int32), c_int32, POINTER(c_int32), POINTER(pi_error))
pi_session_get_state = _declare("pi_session_get_state", c_int, POINTER(pi_session),
    POINTER(c_int32), c_int32, c_void_p, c_size_t, POINTER(c_size_t), POINTER(pi_error))
pi_session_set_state = _declare("pi_session_set_state", c_int, POINTER(pi_session), c_void_p,
    c_size_t, POINTER(c_int32), c_int32, POINTER(c_int32), POINTER(pi_error))
pi_session_state_id = _declare("pi_session_state_id", c_uint64, POINTER(pi_session))
pi_session_range_bytes = _declare("pi_session_range_bytes", c_size_t, POINTER(pi_session), c_int32)
pi_session_recurrent_bytes = _declare("pi_session_recurrent_bytes", c_size_t, POINTER(pi_session))
pi_session_get_range = _declare("pi_session_get_range", c_int, POINTER(pi_session), c_int32,
    c_int32, c_void_p, POINTER(pi_error))
pi_session_get_recurrent = _declare("pi_session_get_recurrent", c_int, POINTER(pi_session), c_int32,
    c_void_p, POINTER(pi_error))
pi_session_put_ranges = _declare("pi_session_put_ranges", c_int, POINTER(pi_session), c_int32,
    POINTER(pi_session_range), c_size_t, POINTER(c_int32), c_void_p, POINTER(pi_error))
pi_version = _declare("pi_version", c_char_p)
pi_model_default_options = _declare("pi_model_default_options", pi_model_options)
pi_model_open = _declare("pi_model_open", c_int, c_char_p, POINTER(pi_model_options),
    POINTER(POINTER(pi_model)), POINTER(pi_error))
pi_model_open_memory = _declare("pi_model_open_memory", c_int, c_void_p, c_size_t,
    POINTER(pi_model_options), POINTER(POINTER(pi_model)), POINTER(pi_error))
pi_model_close = _declare("pi_model_close", None, POINTER(pi_model))
pi_mapped_file = _declare("pi_mapped_file", c_char_p, c_void_p)
pi_model_get_info = _declare("pi_model_get_info", None, POINTER(pi_model), POINTER(pi_model_info))
pi_tokenize = _declare("pi_tokenize", c_int, POINTER(pi_model), c_char_p, c_size_t, c_uint32,
    POINTER(c_int32), c_size_t, POINTER(c_size_t), POINTER(pi_error))
pi_token_text = _declare("pi_token_text", c_int, POINTER(pi_model), c_int32, c_bool,
    POINTER(c_char), c_size_t, POINTER(c_size_t), POINTER(pi_error))
pi_detokenize = _declare("pi_detokenize", c_int, POINTER(pi_model), POINTER(c_int32), c_size_t,
    c_bool, POINTER(c_char), c_size_t, POINTER(c_size_t), POINTER(pi_error))
pi_token_is_end = _declare("pi_token_is_end", c_bool, POINTER(pi_model), c_int32)
pi_context_default_options = _declare("pi_context_default_options", pi_context_options)
pi_context_create = _declare("pi_context_create", c_int, POINTER(pi_model),
    POINTER(pi_context_options), POINTER(POINTER(pi_context)), POINTER(pi_error))
pi_context_destroy = _declare("pi_context_destroy", None, POINTER(pi_context))
pi_context_model = _declare("pi_context_model", POINTER(pi_model), POINTER(pi_context))
pi_forward = _declare("pi_forward", c_int, POINTER(pi_context), POINTER(pi_input), c_int32,
    POINTER(pi_error))
pi_forward_begin = _declare("pi_forward_begin", c_int, POINTER(pi_context), POINTER(pi_input),
    c_int32, POINTER(pi_error))
pi_forward_end = _declare("pi_forward_end", c_int, POINTER(pi_context), POINTER(pi_error))
pi_context_passes = _declare("pi_context_passes", c_int32, POINTER(pi_context))
pi_logits = _declare("pi_logits", POINTER(c_float), POINTER(pi_context), c_int32)
pi_logits_rows = _declare("pi_logits_rows", c_int32, POINTER(pi_context))
pi_hidden = _declare("pi_hidden", POINTER(c_float), POINTER(pi_context), c_int32)
pi_hidden_rows = _declare("pi_hidden_rows", c_int32, POINTER(pi_context))
pi_context_cancel = _declare("pi_context_cancel", None, POINTER(pi_context))
pi_context_get_counters = _declare("pi_context_get_counters", None, POINTER(pi_context),
    POINTER(pi_counters))
pi_context_kernels = _declare("pi_context_kernels", c_char_p, POINTER(pi_context))
pi_context_mode = _declare("pi_context_mode", c_char_p, POINTER(pi_context))
pi_context_loss = _declare("pi_context_loss", c_double, POINTER(pi_context))
pi_context_predicts_head = _declare("pi_context_predicts_head", c_bool, POINTER(pi_context),
    POINTER(c_double))
pi_context_attn_blocks = _declare("pi_context_attn_blocks", c_int32, POINTER(pi_context))
pi_context_threads = _declare("pi_context_threads", c_int32, POINTER(pi_context))
pi_context_batch = _declare("pi_context_batch", c_int32, POINTER(pi_context))
pi_generate_default_options = _declare("pi_generate_default_options", pi_generate_options)
pi_generate = _declare("pi_generate", c_int, POINTER(pi_context), POINTER(pi_session),
    POINTER(pi_generate_options), POINTER(pi_generated), POINTER(pi_error))
pi_chat_template_create = _declare("pi_chat_template_create", c_int, POINTER(pi_model),
    POINTER(pi_chat_template_options), POINTER(POINTER(pi_chat_template)), POINTER(pi_error))
pi_chat_template_free = _declare("pi_chat_template_free", None, POINTER(pi_chat_template))
pi_chat_template_source = _declare("pi_chat_template_source", c_char_p, POINTER(pi_chat_template),
    c_bool)
pi_chat_template_render = _declare("pi_chat_template_render", c_int, POINTER(pi_chat_template),
    c_char_p, c_size_t, POINTER(tm), POINTER(POINTER(c_char)), POINTER(c_size_t), POINTER(pi_error))
pi_text_free = _declare("pi_text_free", None, POINTER(c_char))
pi_pooling_name = _declare("pi_pooling_name", c_char_p, c_int)
pi_model_pooling = _declare("pi_model_pooling", c_int, POINTER(pi_model), POINTER(c_bool))
pi_model_is_encoder = _declare("pi_model_is_encoder", c_bool, POINTER(pi_model))
pi_embedding_width = _declare("pi_embedding_width", c_int32, POINTER(pi_model), c_int)
pi_embed = _declare("pi_embed", c_int, POINTER(pi_context), POINTER(pi_embed_text), c_int32, c_int,
    POINTER(c_float), POINTER(pi_error))
pi_normalize = _declare("pi_normalize", None, POINTER(c_float), c_int32, c_int32)
pi_tokenize_pair = _declare("pi_tokenize_pair", c_int, POINTER(pi_model), c_char_p, c_size_t,
    c_char_p, c_size_t, POINTER(c_int32), c_size_t, POINTER(c_size_t), POINTER(pi_error))
pi_generation_create = _declare("pi_generation_create", c_int, POINTER(pi_model),
    POINTER(pi_generation_options), POINTER(POINTER(pi_generation)), POINTER(pi_error))
pi_generation_free = _declare("pi_generation_free", None, POINTER(pi_generation))
pi_generation_sample = _declare("pi_generation_sample", c_int, POINTER(pi_generation),
    POINTER(c_float), POINTER(pi_sampled), POINTER(pi_error))
pi_generation_accept = _declare("pi_generation_accept", c_int, POINTER(pi_generation),
    POINTER(pi_sampled), POINTER(pi_released), POINTER(pi_error))
pi_generation_end = _declare("pi_generation_end", None, POINTER(pi_generation), c_int,
    POINTER(pi_released))
pi_model_open_drafter = _declare("pi_model_open_drafter", c_int, POINTER(pi_model), c_char_p,
    c_int32, POINTER(POINTER(pi_model)), POINTER(pi_error))
pi_session_features = _declare("pi_session_features", POINTER(c_float), POINTER(pi_session),
    c_int32)
pi_session_features_first = _declare("pi_session_features_first", c_int32, POINTER(pi_session))
pi_speculator_default_options = _declare("pi_speculator_default_options", pi_speculator_options)
pi_speculator_create = _declare("pi_speculator_create", c_int, POINTER(pi_speculator_options),
    POINTER(POINTER(pi_speculator)), POINTER(pi_error))
pi_speculator_destroy = _declare("pi_speculator_destroy", None, POINTER(pi_speculator))
pi_speculator_begin = _declare("pi_speculator_begin", c_int, POINTER(pi_speculator), c_int32,
    POINTER(c_int32), c_int32, POINTER(pi_sampler), POINTER(pi_error))
pi_speculator_forget = _declare("pi_speculator_forget", None, POINTER(pi_speculator), c_int32)
pi_speculator_accept = _declare("pi_speculator_accept", c_bool, POINTER(pi_speculator), c_int32,
    c_int32)
pi_speculator_draft = _declare("pi_speculator_draft", c_int, POINTER(pi_speculator),
    POINTER(pi_draft), c_int32, c_int32, POINTER(pi_error))
pi_speculator_measured = _declare("pi_speculator_measured", None, POINTER(pi_speculator), c_int32,
    c_double)
pi_speculator_counts = _declare("pi_speculator_counts", pi_draft_counts, POINTER(pi_speculator),
    c_int32)
pi_sampler_clone = _declare("pi_sampler_clone", c_int, POINTER(pi_sampler),
    POINTER(POINTER(pi_sampler)), POINTER(pi_error))
pi_sampler_copy = _declare("pi_sampler_copy", None, POINTER(pi_sampler), POINTER(pi_sampler))
pi_convert_default_options = _declare("pi_convert_default_options", pi_convert_options)
pi_convert = _declare("pi_convert", c_int, c_char_p, c_char_p, POINTER(pi_convert_options),
    POINTER(pi_error))
pi_quantize_default_options = _declare("pi_quantize_default_options", pi_quantize_options)
pi_quantize_type_name = _declare("pi_quantize_type_name", c_char_p, c_char_p)
pi_quantize = _declare("pi_quantize", c_int, c_char_p, c_char_p, POINTER(pi_quantize_options),
    POINTER(pi_quantize_result), POINTER(pi_error))
pi_imatrix_default_options = _declare("pi_imatrix_default_options", pi_imatrix_options)
pi_imatrix = _declare("pi_imatrix", c_int, c_char_p, c_char_p, c_char_p,
    POINTER(pi_imatrix_options), POINTER(pi_error))
pi_prepare_default_options = _declare("pi_prepare_default_options", pi_prepare_options)
pi_prepare = _declare("pi_prepare", c_int, c_char_p, c_char_p, POINTER(pi_prepare_options),
    POINTER(pi_prepare_result), POINTER(pi_error))
pi_prepare_undo = _declare("pi_prepare_undo", c_int, c_char_p, c_char_p,
    POINTER(pi_prepare_options), POINTER(pi_error))
pi_tune_default_options = _declare("pi_tune_default_options", pi_tune_options)
pi_tune = _declare("pi_tune", c_int, c_char_p, c_char_p, POINTER(pi_tune_options),
    POINTER(pi_tune_result), POINTER(pi_error))
pi_synth_default_options = _declare("pi_synth_default_options", pi_synth_options)
pi_synth = _declare("pi_synth", c_int, c_char_p, POINTER(pi_synth_options), POINTER(pi_error))
pi_inspect = _declare("pi_inspect", c_int, c_char_p, POINTER(pi_inspect_options), c_void_p,
    POINTER(pi_error))
pi_place_default_options = _declare("pi_place_default_options", pi_place_options)
pi_place = _declare("pi_place", c_int, c_char_p, POINTER(pi_place_options), c_void_p,
    POINTER(pi_error))
pi_template_name = _declare("pi_template_name", c_char_p, c_size_t)
pi_template = _declare("pi_template", c_int, c_char_p, c_size_t, POINTER(pi_template_options),
    c_void_p, POINTER(pi_error))
pi_devices = _declare("pi_devices", c_int, c_char_p, c_char_p, POINTER(pi_device), c_size_t,
    POINTER(c_size_t), POINTER(pi_error))
pi_trace_start = _declare("pi_trace_start", c_int, POINTER(pi_context), c_int32, POINTER(pi_error))
pi_trace_write = _declare("pi_trace_write", c_int, POINTER(pi_context), c_char_p,
    POINTER(pi_trace_summary), c_int32, POINTER(c_int32), POINTER(pi_error))
pi_bench_default_options = _declare("pi_bench_default_options", pi_bench_options)
pi_bench = _declare("pi_bench", c_int, POINTER(pi_model), POINTER(pi_bench_options),
    POINTER(pi_bench_report), POINTER(pi_error))
pi_perplexity_default_options = _declare("pi_perplexity_default_options", pi_perplexity_options)
pi_perplexity = _declare("pi_perplexity", c_int, POINTER(pi_model), c_char_p, c_size_t,
    POINTER(pi_perplexity_options), POINTER(pi_perplexity_report), POINTER(pi_error))

_DEFAULTS: Dict[Any, Any] = {pi_cluster_options: pi_cluster_default_options,
    pi_sampler_options: pi_sampler_default_options, pi_model_options: pi_model_default_options,
    pi_context_options: pi_context_default_options,
    pi_generate_options: pi_generate_default_options,
    pi_speculator_options: pi_speculator_default_options,
    pi_convert_options: pi_convert_default_options,
    pi_quantize_options: pi_quantize_default_options,
    pi_imatrix_options: pi_imatrix_default_options, pi_prepare_options: pi_prepare_default_options,
    pi_tune_options: pi_tune_default_options, pi_synth_options: pi_synth_default_options,
    pi_place_options: pi_place_default_options, pi_bench_options: pi_bench_default_options,
    pi_perplexity_options: pi_perplexity_default_options}
# ---- end of the generated section ----

if not pi_version().startswith(b"%d.%d." % (PI_VERSION_MAJOR, PI_VERSION_MINOR)):
    raise ImportError("libpowerinfer %s has other structs than this module for version %d.%d: use "
                      "files of one version" % (pi_version().decode(), PI_VERSION_MAJOR,
                                                PI_VERSION_MINOR))


# ---- errors, objects and calls -------------------------------------------------------------------


class Error(Exception):
    """An error of the library: `status`, and `message`, one line for the user."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.message = pi_status(status), message


def _str(text: Optional[bytes]) -> str:
    return text.decode("utf-8", "replace") if text else ""


def _bytes(text: Any) -> bytes:
    if isinstance(text, str):
        return text.encode("utf-8", "surrogateescape")
    return bytes(text) if isinstance(text, (bytes, bytearray, memoryview)) else os.fsencode(text)


class _Lock:
    """Calls on a context, or a sampler, one at a time. An object that is destroyed meanwhile, maybe
    by the garbage collector, waits in `pending` for the end of the call, not the collector."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pending: Deque[Callable[[], None]] = deque()

    def acquire(self) -> None:
        self.lock.acquire()

    def release(self) -> None:
        self.lock.release()
        self.drain()

    def soon(self, action: Callable[[], None]) -> None:
        self.pending.append(action)
        self.drain()

    def drain(self) -> None:
        while self.pending and self.lock.acquire(blocking=False):
            try:
                action = self.pending.popleft() if self.pending else None
                if action:
                    action()
            finally:
                self.lock.release()


class _Handle:
    """An object of the library. Its uses are the Python object, other handles that need it, and
    running calls; the last one destroys it."""

    counting = threading.RLock()

    def __init__(self, pointer: Any, destroy: Callable[[Any], None],
                 parents: Sequence["_Handle"], lock: Optional[_Lock], kept: Any = None):
        self.pointer, self.destroy, self.lock, self.kept = pointer, destroy, lock, kept
        self.uses = 1
        self.parents: List[_Handle] = []
        for parent in parents:
            self.parents.append(parent.use())

    def use(self) -> "_Handle":
        with self.counting:
            if self.uses == 0:
                raise ValueError("the object is closed")
            self.uses += 1
        return self

    def release(self) -> None:
        with self.counting:
            self.uses -= 1
            last = self.uses == 0
        if last and self.lock:
            self.lock.soon(self.end)
        elif last:
            self.end()

    def end(self) -> None:
        self.destroy(self.pointer)
        for parent in self.parents:
            parent.release()
        self.parents = []
        self.kept = None


class _Object:
    """Something to close. Also a context manager."""

    _handle: Optional[_Handle] = None

    def close(self) -> None:
        """Destroys the object as soon as no other object and no call needs it."""
        handle, self._handle = self._handle, None
        if handle:
            handle.release()

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _open(self) -> _Handle:
        handle = self._handle
        if not handle:
            raise ValueError("the %s is closed" % type(self).__name__.lower())
        return handle


class _Held:
    """Keeps objects during a call, and other threads out of them."""

    def __init__(self, objects: Sequence[Any], exclusive: bool = True):
        self.handles: List[_Handle] = []
        try:
            for o in objects:
                self.handles.append((o._open() if isinstance(o, _Object) else o).use())
        except ValueError:
            self.end(())
            raise
        locks = {id(h.lock): h.lock for h in self.handles if h.lock and exclusive}
        self.locks = [locks[key] for key in sorted(locks)]  # one order: no deadlock

    def end(self, locks: Sequence[_Lock]) -> None:
        for lock in locks:
            lock.release()
        for handle in self.handles:
            handle.release()

    def __enter__(self) -> List[Any]:
        for lock in self.locks:
            lock.acquire()
        return [h.pointer for h in self.handles]

    def __exit__(self, *_: Any) -> None:
        self.end(self.locks)


def _get(function: Any, *arguments: Any) -> Any:
    """Calls a function that cannot fail. Arguments may be objects."""
    with _Held([a for a in arguments if isinstance(a, _Object)]):
        return function(*[a._open().pointer if isinstance(a, _Object) else a for a in arguments])


def _get_struct(function: Any, struct: Any, *arguments: Any) -> Any:
    out = struct()
    with _Held(arguments[:1]):  # the strings are valid while the object is
        function(arguments[0]._open().pointer, *arguments[1:], byref(out))
        return _plain(out)


def _plain(value: Any) -> Any:
    """A result struct as a dataclass; pi_quantize_tensor.from is from_."""
    if isinstance(value, pi_error):
        return Error(value.status, _str(value.message)) if value.status else None
    if not isinstance(value, _Struct):
        return value
    fields = {}
    names = [name for name, *_ in value._fields_]
    for name in names:
        item = getattr(value, name)
        if name in value._enums_:
            item = value._enums_[name](item)
        elif isinstance(item, bytes):
            item = _str(item)
        elif isinstance(item, ctypes.Array):
            n = getattr(value, "n_" + name) if "n_" + name in names else len(item)
            item = [_plain(item[i]) for i in range(n)]
        fields[name + "_" * keyword.iskeyword(name)] = _plain(item)
    return _RESULTS[type(value)](**fields)


class _Call:
    """One call: its arguments, which live as long, the objects it uses, and the first exception of
    its callbacks."""

    def __init__(self, *objects: Any):
        self.objects: List[Any] = list(objects)
        self.kept: List[Any] = []
        self.raised: Optional[BaseException] = None
        self.error = pi_error()

    def run(self, function: Any, *arguments: Any, allow: Tuple[int, ...] = ()) -> int:
        with _Held(self.objects):
            passed = [a._open().pointer if isinstance(a, _Object) else a for a in arguments]
            status: int = function(*passed, byref(self.error))
        if self.raised:
            raise self.raised
        if status and status not in allow:
            raise Error(status, _str(self.error.message))
        return status

    def create(self, function: Any, destroy: Any, pointer_type: Any, parents: Sequence[Any],
               lock: Optional[_Lock], *arguments: Any) -> _Handle:
        """The handle of an object that `function` stores in its last argument but the error."""
        out = POINTER(pointer_type)()
        self.objects += parents
        try:
            self.run(function, *arguments, byref(out))
            handles = [p._open() if isinstance(p, _Object) else p for p in parents]
            return _Handle(out, destroy, handles, lock)
        except BaseException:
            if out:
                destroy(out)
            raise

    def sized(self, function: Any, element: Any, capacity: int, *arguments: Any) -> Any:
        """Calls function(..., buffer, capacity, &n, err) until the buffer is large enough. Returns
        the buffer and n."""
        while True:
            buffer, n = (element * capacity)(), c_size_t()
            status = self.run(function, *arguments, buffer, capacity, byref(n),
                              allow=(PI_ERR_LIMIT,))
            if n.value <= capacity and status == PI_OK:
                return buffer, n.value
            if n.value <= capacity:
                raise Error(status, _str(self.error.message))
            capacity = n.value

    # Python values to C

    def text(self, text: Any) -> Any:
        self.kept.append(_bytes(text))
        return self.kept[-1]

    def array(self, element: Any, values: Any) -> Any:
        if element is c_float:
            return _floats(values)
        if element is c_char_p:
            values = [self.text(v) for v in values]
        elif values and isinstance(values[0], _Object):
            self.objects += values
            values = [v._open().pointer for v in values]
        elif hasattr(element, "_counts_"):  # a struct
            if element is pi_stop_text:
                values = [{"text": v} if isinstance(v, (str, bytes)) else v for v in values]
            values = [self.struct(element, v) for v in values]
        out = (element * len(values))(*values)
        self.kept.append(out)
        return out

    def options(self, struct: Any, values: Mapping[str, Any]) -> Any:
        """An options struct: its defaults, changed by `values`. Its progress callback is always
        set, so that an exception in any callback, or Ctrl-C, ends the call."""
        out = _DEFAULTS[struct]() if struct in _DEFAULTS else struct()
        self.struct(out, values)
        if "progress" in dict(struct._fields_) and not values.get("progress"):
            self.struct(out, {"progress": lambda stage, fraction: True})
        return out

    def struct(self, out: Any, values: Any) -> Any:
        if isinstance(out, type):
            out = out()
        types = {name: kind for name, kind, *_ in out._fields_}
        for name, value in values.items():
            if name not in types:
                raise TypeError("%s has no field %s" % (type(out).__name__, name))
            if value is not None:
                self.field(out, name, types, value, values)
        return out

    def field(self, out: Any, name: str, types: Dict[str, Any], value: Any,
              values: Mapping[str, Any]) -> None:
        kind, count = types[name], out._counts_.get(name)
        element, array = getattr(kind, "_type_", None), issubclass(kind, ctypes.Array)
        if isinstance(value, _Object):
            self.objects.append(value)
            value = value._open().pointer
        elif kind is c_char_p:
            value = self.text(value)
            if count:
                setattr(out, count, len(value))
        elif kind is c_void_p:
            value = cast(self.text(value), c_void_p)
        elif hasattr(kind, "_restype_"):
            value = self.callback(kind, value)
        elif hasattr(kind, "_counts_"):
            self.struct(getattr(out, name), value)
            return
        elif array and len(value) > getattr(kind, "_length_"):
            raise ValueError("%s: more than %d values" % (name, getattr(kind, "_length_")))
        elif array:
            if "n_" + name in types and "n_" + name not in values:
                setattr(out, "n_" + name, len(value))
            value = kind(*value)
        elif element is tm:
            value = self.time(value)
        elif hasattr(kind, "contents") and count:
            value = self.array(element, value)
            setattr(out, count, len(value))
            value = cast(value, kind)
        elif hasattr(kind, "contents"):
            nested = self.options(element, value)
            self.kept.append(nested)
            value = ctypes.pointer(nested)
        setattr(out, name, value)

    def time(self, now: Time) -> Any:
        t = now.timetuple() if isinstance(now, datetime.datetime) else now
        # Python counts months and days of the year from 1, and days of the week from Monday.
        out = tm(t.tm_sec, t.tm_min, t.tm_hour, t.tm_mday, t.tm_mon - 1, t.tm_year - 1900,
                 (t.tm_wday + 1) % 7, t.tm_yday - 1, t.tm_isdst)
        self.kept.append(out)
        return ctypes.pointer(out)

    def callback(self, kind: Any, function: Callable[..., Any]) -> Any:
        def called(_user: Any, *arguments: Any) -> Any:
            if self.raised:
                return False if kind._restype_ else None
            try:
                if kind is pi_piece:
                    token, text, n_bytes = arguments
                    arguments = (token, _str(ctypes.string_at(text, n_bytes)))
                answer = function(*[
                    _str(a) if isinstance(a, bytes)
                    else _plain(a.contents) if isinstance(a, ctypes._Pointer) else a
                    for a in arguments])
                return answer is not False if kind._restype_ else None
            except BaseException as exception:
                self.raised = exception
                return False if kind._restype_ else None
        self.kept.append(kind(called))
        return self.kept[-1]


def _floats(values: Any) -> Any:
    """A C array of the values, which it shares with a writable buffer of float32."""
    try:
        view = memoryview(values)
    except TypeError:
        return (c_float * len(values))(*values)
    if view.format != "f" or not view.c_contiguous:
        return (c_float * len(values))(*values)
    kind = c_float * (view.nbytes // 4)
    return kind.from_buffer_copy(view) if view.readonly else kind.from_buffer(view)


def _float_array(pointer: Any, n: int) -> "array.array[float]":
    return array.array("f", ctypes.string_at(pointer, 4 * n))


def _written(call: _Call, function: Any, *arguments: Any) -> str:
    """What a function writes to the FILE that is its last argument but the error."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out")
        file = _libc.fopen(os.fsencode(path), b"wb")
        if not file:
            raise OSError("cannot write a temporary file: %s" % path)
        try:
            call.run(function, *arguments, file)
        finally:
            _libc.fclose(c_void_p(file))
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()


_libc = ctypes.CDLL(None) if os.name == "posix" else ctypes.CDLL("ucrtbase")
_libc.fopen.restype, _libc.fopen.argtypes = c_void_p, (c_char_p, c_char_p)
_libc.fclose.argtypes = (c_void_p,)


# ---- models --------------------------------------------------------------------------------------


class Model(_Object):
    """An opened GGUF file. Any number of threads may use it at once."""

    def __init__(self, path: Path, **options: Unpack[ModelOptions]):
        """Options: the fields of ModelOptions."""
        call = _Call()
        values = call.options(pi_model_options, options)
        self._opened(call.create(pi_model_open, pi_model_close, pi_model, [], None,
                                 call.text(path), byref(values)))

    @classmethod
    def open_memory(cls, data: bytes, **options: Unpack[ModelOptions]) -> "Model":
        """Opens the bytes of a file, which are copied."""
        call, model = _Call(), cls.__new__(cls)
        values = call.options(pi_model_options, options)
        room = (c_char * (len(data) + 32))()
        address = -(-ctypes.addressof(room) // 32) * 32  # aligned to 32
        ctypes.memmove(address, data, len(data))
        model._opened(call.create(pi_model_open_memory, pi_model_close, pi_model, [], None,
                                  c_void_p(address), len(data), byref(values)))
        model._open().kept = room
        return model

    def open_drafter(self, path: Optional[Path] = None, layer: int = 0) -> "Model":
        """Opens a head that drafts for this model: one of its layers for multi-token prediction, or
        of those of a file. Contexts keep features for it with the option `drafter`."""
        call, head = _Call(), Model.__new__(Model)
        head._opened(call.create(pi_model_open_drafter, pi_model_close, pi_model, [self], None,
                                 self, None if path is None else _bytes(path), layer))
        return head

    def _opened(self, handle: _Handle) -> None:
        self._handle = handle
        info = self.get_info()
        self._n_vocab, self._n_embd = info.n_vocab, info.n_embd

    def get_info(self) -> ModelInfo:
        return _get_struct(pi_model_get_info, pi_model_info, self)

    def tokenize(self, text: Text, flags: int = PI_TOKENIZE_BOS) -> List[int]:
        """Flags: PI_TOKENIZE_..."""
        call, text = _Call(self), _bytes(text)
        tokens, n = call.sized(pi_tokenize, c_int32, len(text) + 16, self, text, len(text), flags)
        return tokens[:n]

    def token_text(self, token: int, special: bool = False) -> bytes:
        """The bytes of a token, which may be part of a character."""
        text, n = _Call(self).sized(pi_token_text, c_char, 64, self, token, special)
        return text[:n]

    def detokenize(self, tokens: Sequence[int], special: bool = False) -> str:
        ids = (c_int32 * len(tokens))(*tokens)
        text, n = _Call(self).sized(pi_detokenize, c_char, 8 * len(tokens) + 16, self, ids,
                                    len(tokens), special)
        return _str(text[:n])

    def token_is_end(self, token: int) -> bool:
        return _get(pi_token_is_end, self, token)

    def token(self, role: int) -> int:
        """The token for a PI_TOKEN_... role; -1: none."""
        return _get(pi_model_token, self, role)

    def n_metadata(self) -> int:
        return _get(pi_model_n_metadata, self)

    def metadata_key(self, index: int) -> str:
        text, n = _Call(self).sized(pi_model_metadata_key, c_char, 64, self, index)
        return _str(text[:n])

    def metadata(self, key: str) -> str:
        """The value of a key, as text."""
        text, n = _Call(self).sized(pi_model_metadata, c_char, 256, self, _bytes(key))
        return _str(text[:n])

    def pooling(self) -> pi_pooling:
        """The pooling that the file names; PI_POOLING_NONE without one."""
        return pi_pooling(_get(pi_model_pooling, self, None))

    def is_encoder(self) -> bool:
        return _get(pi_model_is_encoder, self)

    def embedding_width(self, pooling: int = PI_POOLING_MODEL) -> int:
        return _get(pi_embedding_width, self, pooling)

    def tokenize_pair(self, query: Text, document: Text) -> List[int]:
        """The tokens of a query and a document, for PI_POOLING_RANK."""
        q, d = _bytes(query), _bytes(document)
        tokens, n = _Call(self).sized(pi_tokenize_pair, c_int32, len(q) + len(d) + 16, self, q,
                                      len(q), d, len(d))
        return tokens[:n]


class Grammar(_Object):
    """A grammar for samplers of one model, from GBNF. Any number of threads may use it at once."""

    def __init__(self, model: Model, gbnf: Text, **options: Unpack[GrammarOptions]):
        """Options: the fields of GrammarOptions."""
        call, text = _Call(), _bytes(gbnf)
        values = call.options(pi_grammar_options, options)
        self._handle = call.create(pi_grammar_create, pi_grammar_free, pi_grammar, [model], None,
                                   model, text, len(text), byref(values))

    @classmethod
    def from_schema(cls, model: Model, schema: Union[Text, Mapping[str, Any]]) -> "Grammar":
        """From a JSON Schema, as text or as Python objects."""
        text = _bytes(json.dumps(schema) if isinstance(schema, Mapping) else schema)
        grammar = cls.__new__(cls)
        grammar._handle = _Call().create(pi_grammar_from_schema, pi_grammar_free, pi_grammar,
                                         [model], None, model, text, len(text))
        return grammar

    def free(self) -> None:
        self.close()

    def retain(self) -> "Grammar":
        """Another object for the same grammar."""
        other = type(self).__new__(type(self))
        with _Held([self]) as (pointer,):
            handle = self._open()
            other._handle = _Handle(pi_grammar_retain(pointer), pi_grammar_free, handle.parents,
                                    None)
        return other

    def memory(self) -> int:
        """Current size in bytes."""
        return _get(pi_grammar_memory, self)

    def widened(self) -> List[str]:
        """Keywords of schemas that constrain nothing."""
        out: List[str] = []
        while True:
            line = _get(pi_grammar_widened, self, len(out))
            if line is None:
                return out
            out.append(_str(line))

    def match(self, text: Text) -> Tuple[bool, bool]:
        """Whether the text begins a text of the grammar, and whether it is one."""
        text, begins, complete = _bytes(text), c_bool(), c_bool()
        _Call(self).run(pi_grammar_match, self, text, len(text), byref(begins), byref(complete))
        return begins.value, complete.value


class ChatTemplate(_Object):
    """The chat template of a model, or a given one. Any number of threads may use it at once."""

    def __init__(self, model: Model, **options: Unpack[ChatTemplateOptions]):
        """Options: the fields of ChatTemplateOptions."""
        call = _Call()
        values = call.options(pi_chat_template_options, options)
        self._handle = call.create(pi_chat_template_create, pi_chat_template_free,
                                   pi_chat_template, [model], None, model, byref(values))

    def free(self) -> None:
        self.close()

    def source(self, tools: bool = False) -> str:
        """The Jinja source for requests with or without tools."""
        with _Held([self]) as (pointer,):
            return _str(pi_chat_template_source(pointer, tools))

    def render(self, request: Union[Text, Mapping[str, Any]], now: Optional[Time] = None) -> str:
        """The prompt for a request: {"messages": [{"role": "user", "content": "Hello"}],
        "add_generation_prompt": True}. Tokenize it with PI_TOKENIZE_SPECIAL."""
        call = _Call(self)
        text = _bytes(json.dumps(request) if isinstance(request, Mapping) else request)
        out, n = POINTER(c_char)(), c_size_t()
        call.run(pi_chat_template_render, self, text, len(text), call.time(now) if now else None,
                 byref(out), byref(n))
        try:
            return _str(ctypes.string_at(out, n.value))
        finally:
            pi_text_free(out)


# ---- samplers ------------------------------------------------------------------------------------


class Sampler(_Object):
    """Turns logits into tokens."""

    def __init__(self, model: Model, **options: Unpack[SamplerOptions]):
        """Options: the fields of SamplerOptions."""
        call = _Call()
        values = call.options(pi_sampler_options, options)
        self._n_vocab = model._n_vocab
        self._handle = call.create(pi_sampler_create, pi_sampler_destroy, pi_sampler, [model],
                                   _Lock(), model, byref(values))

    def destroy(self) -> None:
        self.close()

    def accept(self, token: int) -> None:
        """Adds a token of the prompt to the history."""
        _get(pi_sampler_accept, self, token)

    def sample(self, logits: Floats) -> int:
        """The next token for logits [n_vocab]; -1: the grammar allows none."""
        return _get(pi_sampler_sample, self, _row(logits, self._n_vocab))

    def seed(self) -> int:
        return _get(pi_sampler_seed, self)

    def grammar_progress(self) -> Tuple[pi_grammar_progress, Optional[Error]]:
        """The state of the grammar, and the reason of PI_GRAMMAR_FAILED."""
        why = pi_error()
        progress = pi_grammar_progress(_get(pi_sampler_grammar_progress, self, byref(why)))
        return progress, _plain(why) if progress == PI_GRAMMAR_FAILED else None

    def grammar_restart(self) -> None:
        _get(pi_sampler_grammar_restart, self)

    def clone(self) -> "Sampler":
        """A copy that samples the same tokens."""
        other = type(self).__new__(type(self))
        other._n_vocab = self._n_vocab
        handle = self._open()
        other._handle = _Call(self).create(pi_sampler_clone, pi_sampler_destroy, pi_sampler,
                                           handle.parents, _Lock(), self)
        return other

    def copy(self, source: "Sampler") -> None:
        """Sets this sampler, a clone of `source`, to the state of `source`."""
        _get(pi_sampler_copy, self, source)


def _row(logits: Any, n_vocab: int) -> Any:
    floats = _floats(logits)
    if len(floats) != n_vocab:
        raise ValueError("%d logits: the vocabulary has %d tokens" % (len(floats), n_vocab))
    return floats


@dataclass(frozen=True)
class Released:
    """Text that Generation.accept releases."""
    text: str
    n_total: int  # bytes of all tokens so far
    stop: pi_stop
    stop_text: int  # index of the stop text; -1: none


class Generation(_Object):
    """The text of one sequence, token by token, for a loop of the program."""

    def __init__(self, model: Model, sampler: Sampler, **options: Any):
        """Options: the fields of GenerationOptions."""
        call = _Call()
        values = call.options(pi_generation_options,
                              {"max_tokens": -1, "sampler": sampler, **options})
        self._n_vocab = model._n_vocab
        self._handle = call.create(pi_generation_create, pi_generation_free, pi_generation,
                                   [model, sampler], sampler._open().lock, model, byref(values))
        self._handle.kept = call.kept  # `visible`

    def free(self) -> None:
        self.close()

    def sample(self, logits: Floats) -> Sampled:
        """Samples the next token from logits [n_vocab]."""
        out = pi_sampled()
        _Call(self).run(pi_generation_sample, self, _row(logits, self._n_vocab), byref(out))
        return _plain(out)

    def accept(self, sampled: Sampled) -> Released:
        """Appends a sampled token to the text and tells whether the text ends."""
        token, out = pi_sampled(sampled.token, sampled.end, sampled.complete), pi_released()
        call = _Call(self)
        with _Held([self]):
            call.run(pi_generation_accept, self, byref(token), byref(out))
            return _released(out)

    def end(self, stop: int) -> Released:
        """Ends the text and releases the bytes that were held back."""
        out = pi_released()
        with _Held([self]) as (pointer,):
            pi_generation_end(pointer, stop, byref(out))
            return _released(out)


def _released(out: Any) -> Released:
    text = ctypes.string_at(out.text, out.n_bytes) if out.n_bytes else b""
    return Released(_str(text), out.n_total, pi_stop(out.stop), out.stop_text)


# ---- contexts and sessions -----------------------------------------------------------------------


@dataclass(frozen=True)
class GeneratedText(Generated):
    """The result of Context.generate: the counts, the text and its tokens."""
    text: str
    tokens: List[int]


class Cluster(_Object):
    """The processes (ranks) that an MPI launcher started, each with a range of the layers of a
    model (docs/cluster-mpi.md). Once per process. Rank 0 creates contexts with the option
    `cluster`, the others call work."""

    def __init__(self, **options: Unpack[ClusterOptions]):
        """Joins the other ranks. Options: the fields of ClusterOptions. `lost` and `give_up` are
        called in another thread."""
        call = _Call()
        values = call.options(pi_cluster_options, options)
        self._handle = call.create(pi_cluster_open, pi_cluster_close, pi_cluster, [], _Lock(),
                                   byref(values))
        self._handle.kept = call  # its callbacks

    def fail(self) -> None:
        """Closing the cluster ends all processes: this rank cannot go on."""
        _get(pi_cluster_fail, self)

    def rank(self) -> int:
        return _get(pi_cluster_rank, self)

    def size(self) -> int:
        """The number of ranks."""
        return _get(pi_cluster_size, self)

    def receive(self, folder: Optional[Path] = None,
                **options: Unpack[ModelOptions]) -> Optional[Model]:
        """On a rank above 0 without the model's file: opens the model with the metadata that rank 0
        sends; work receives its layers, into memory or into a file in `folder`. None: rank 0 closed
        the cluster before. Options: the fields of ModelOptions."""
        call, out = _Call(self), POINTER(pi_model)()
        values = call.options(pi_model_options, options)
        call.run(pi_cluster_receive, self, None if folder is None else _bytes(folder),
                 byref(values), byref(out))
        if not out:
            return None
        model = Model.__new__(Model)
        model._opened(_Handle(out, pi_model_close, [], None))
        return model

    def work(self, model: Model, **options: Unpack[ContextOptions]) -> None:
        """On a rank above 0: computes for the contexts of rank 0 until it closes the cluster.
        Options: the fields of ContextOptions."""
        call = _Call(self, model)
        values = call.options(pi_context_options, options)
        call.run(pi_cluster_work, self, model, byref(values))


class Context(_Object):
    """Working memory and worker threads of a model."""

    def __init__(self, model: Model, **options: Unpack[ContextOptions]):
        """Options: the fields of ContextOptions."""
        self._passes: Deque[Tuple[_Call, List[_Handle]]] = deque()
        call = _Call()
        values = call.options(pi_context_options, options)
        drafter, cluster = options.get("drafter"), options.get("cluster")
        self.model = model
        self._n_bins = self._n_traced = 0
        self._n_features = (drafter or model)._n_embd
        self._handle = call.create(pi_context_create, pi_context_destroy, pi_context,
                                   [o for o in (model, drafter, cluster) if o],
                                   cluster._open().lock if cluster else _Lock(), model,
                                   byref(values))

    def destroy(self) -> None:
        self.close()

    def close(self) -> None:
        """Destroys the context as soon as no session and no call needs it; passes under way end
        without results."""
        while self._passes:
            self._end_pass()
        super().close()

    def forward(self, inputs: Sequence[Input]) -> None:
        """Evaluates tokens: [{"session": session, "tokens": tokens, "logits": PI_LOGITS_LAST}]."""
        call = _Call(self)
        values = call.array(pi_input, inputs)
        call.run(pi_forward, self, values, len(values))

    def forward_begin(self, inputs: Sequence[Input]) -> None:
        """Begins a forward; up to passes() may be under way. Its sessions must not be used until
        forward_end has ended it."""
        call = _Call(self)
        values = call.array(pi_input, inputs)
        with _Held(call.objects):
            call.run(pi_forward_begin, self, values, len(values))
            self._passes.append((call, [o._open().use() for o in call.objects[1:]]))

    def forward_end(self) -> None:
        """Ends the oldest pass that was begun: logits and hidden are its rows."""
        with _Held([self]):
            try:
                _Call(self).run(pi_forward_end, self)
            finally:
                if self._passes:
                    self._end_pass()

    def _end_pass(self) -> None:
        for handle in self._passes.popleft()[1]:
            handle.release()

    def passes(self) -> int:
        """The number of passes that may be under way."""
        return _get(pi_context_passes, self)

    def ranks(self) -> int:
        """The number of ranks; 1: without a cluster."""
        return _get(pi_context_ranks, self)

    def get_ranks(self) -> List[Rank]:
        """What the ranks of the cluster have and did; asks them."""
        out = (pi_rank * self.ranks())()
        _Call(self).run(pi_context_get_ranks, self, out)
        return [_plain(rank) for rank in out]

    def logits(self, row: int = 0) -> "array.array[float]":
        """A copy of a row of logits of the last forward, [n_vocab]."""
        return self._floats_of(pi_logits, pi_logits_rows, row, self.model._n_vocab)

    def logits_rows(self) -> int:
        return _get(pi_logits_rows, self)

    def hidden(self, row: int = 0) -> "array.array[float]":
        """A copy of a row of hidden states of the last forward, [n_embd]."""
        return self._floats_of(pi_hidden, pi_hidden_rows, row, self.model._n_embd)

    def hidden_rows(self) -> int:
        return _get(pi_hidden_rows, self)

    def _floats_of(self, function: Any, rows: Any, row: int, n: int) -> "array.array[float]":
        with _Held([self]) as (pointer,):
            if not 0 <= row < rows(pointer):
                raise IndexError("row %d of %d" % (row, rows(pointer)))
            return _float_array(function(pointer, row), n)

    def cancel(self) -> None:
        """Ends the call in progress, or the next one, with PI_ERR_CANCELLED; generate ends with
        PI_STOP_CANCELLED. For other threads."""
        with _Held([self], exclusive=False) as (pointer,):
            pi_context_cancel(pointer)

    def generate(self, session: "Session", **options: Unpack[GenerateOptions]) -> GeneratedText:
        """Continues a prompt. Options: the fields of GenerateOptions. `piece` gets every token."""
        call, given = _Call(self, session), options.get("piece")
        pieces: List[str] = []
        tokens: List[int] = []

        def piece(token: int, text: str) -> Optional[bool]:
            if token >= 0:
                tokens.append(token)
            pieces.append(text)
            return given(token, text) if given else None

        values, out = call.options(pi_generate_options, {**options, "piece": piece}), pi_generated()
        call.run(pi_generate, self, session, byref(values), byref(out))
        counts = {name: getattr(_plain(out), name) for name, *_ in pi_generated._fields_}
        return GeneratedText(text="".join(pieces), tokens=tokens, **counts)

    def stream(self, session: "Session",
               **options: Unpack[GenerateOptions]) -> Generator[str, None, GeneratedText]:
        """Continues a prompt and yields its text in pieces; options as for generate. Closing the
        iterator stops. The generator's value is what generate returns."""
        texts: Any = queue.SimpleQueue()
        stopped = threading.Event()
        piece, progress = options.get("piece"), options.get("progress")

        def on_piece(token: int, text: str) -> bool:
            texts.put(text)
            return not stopped.is_set() and (not piece or piece(token, text) is not False)

        def on_progress(stage: str, fraction: float) -> bool:
            return not stopped.is_set() and (not progress or progress(stage, fraction) is not False)

        def run() -> None:
            try:
                texts.put(self.generate(session, **{**options, "piece": on_piece,
                                                    "progress": on_progress}))
            except BaseException as exception:
                texts.put(exception)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while True:
                item = texts.get()
                if isinstance(item, BaseException):
                    raise item
                if not isinstance(item, str):
                    return item
                if item:
                    yield item
        finally:
            stopped.set()
            thread.join()

    def embed(self, texts: Sequence[Union[Text, Sequence[int]]],
              pooling: int = PI_POOLING_MODEL) -> List["array.array[float]"]:
        """The vectors of texts, or of their tokens: one per text, with PI_POOLING_NONE one per
        token of all texts. Not normalized; see normalize."""
        call, model = _Call(self), self.model
        tokens = [model.tokenize(t) if isinstance(t, (str, bytes)) else t for t in texts]
        if pooling == PI_POOLING_MODEL:
            pooling = model.pooling()
        width = model.embedding_width(pooling)
        n = sum(map(len, tokens)) if pooling == PI_POOLING_NONE else len(tokens)
        values = call.array(pi_embed_text, [{"tokens": t} for t in tokens])
        out = (c_float * (n * width))()
        call.run(pi_embed, self, values, len(tokens), pooling, out)
        return [_float_array(ctypes.addressof(out) + 4 * width * i, width) for i in range(n)]

    def get_counters(self) -> Counters:
        return _get_struct(pi_context_get_counters, pi_counters, self)

    def kernels(self) -> str:
        return _str(_get(pi_context_kernels, self))

    def mode(self) -> str:
        return _str(_get(pi_context_mode, self))

    def loss(self) -> float:
        return _get(pi_context_loss, self)

    def predicts_head(self) -> Tuple[bool, float]:
        """Whether only logits of predicted tokens are computed, and the loss of this."""
        loss = c_double()
        return _get(pi_context_predicts_head, self, byref(loss)), loss.value

    def attn_blocks(self) -> int:
        return _get(pi_context_attn_blocks, self)

    def threads(self) -> int:
        return _get(pi_context_threads, self)

    def batch(self) -> int:
        return _get(pi_context_batch, self)

    def get_placement(self) -> Placement:
        return _get_struct(pi_context_get_placement, pi_placement, self)

    def get_device(self, device: int) -> DevicePlacement:
        if not 0 <= device < self.get_placement().n_devices:
            raise IndexError("no GPU %d in this context" % device)
        return _get_struct(pi_context_get_device, pi_device_placement, self, device)

    def get_layer(self, layer: int) -> LayerPlacement:
        self._check_layer(layer)
        return _get_struct(pi_context_get_layer, pi_layer_placement, self, layer)

    def _check_layer(self, layer: int) -> None:
        if not 0 <= layer < self.get_placement().n_layers:
            raise IndexError("the model has no layer %d" % layer)

    def watch(self, n_bins: int) -> None:
        """Counts active neurons or experts from the next forward on, in n_bins bins; 0: stops."""
        _Call(self).run(pi_context_watch, self, n_bins)
        self._n_bins = n_bins

    def watched(self) -> int:
        """Ubatches that were counted since watch."""
        return _get(pi_context_watched, self)

    def get_activity(self, layer: int) -> LayerActivity:
        self._check_layer(layer)
        out = pi_layer_activity()
        with _Held([self]) as (pointer,):
            pi_context_get_activity(pointer, layer, byref(out))
            bins = out.bins[:self._n_bins] if out.bins else []
        return LayerActivity(pi_activity_kind(out.kind), out.n_units, out.n_hot, out.hot, bins)

    def get_memory(self) -> Memory:
        return _get_struct(pi_context_get_memory, pi_memory, self)

    def measure_drive(self, n_bytes: int, seconds: float) -> float:
        """Bytes per second of the drive for reads of n_bytes, over about `seconds`."""
        rate = c_double()
        _Call(self).run(pi_context_measure_drive, self, n_bytes, seconds, byref(rate))
        return rate.value

    def trace_start(self, n_ubatches: int) -> None:
        """Records the timeline of the next n_ubatches ubatches; 0: discards the recording."""
        _Call(self).run(pi_trace_start, self, n_ubatches)
        self._n_traced = n_ubatches

    def trace_write(self, path: Path) -> List[TraceSummary]:
        """Writes the recording as Chrome trace events and returns a summary of each ubatch."""
        summaries, n = (pi_trace_summary * max(self._n_traced, 1))(), c_int32()
        _Call(self).run(pi_trace_write, self, _bytes(path), summaries, self._n_traced, byref(n))
        return [_plain(summaries[i]) for i in range(min(n.value, self._n_traced))]


class Session(_Object):
    """One sequence of tokens: its KV cache and position."""

    def __init__(self, context: Context, n_ctx: int):
        """Room for n_ctx tokens."""
        self._handle = _Call().create(pi_session_create, pi_session_destroy, pi_session,
                                      [context], context._open().lock, context, n_ctx)
        self._n_features = context._n_features

    def destroy(self) -> None:
        self.close()

    def features(self, position: int) -> Optional["array.array[float]"]:
        """What a head that drafts reads of the token at a position; None: it is not kept."""
        with _Held([self]) as (pointer,):
            row = pi_session_features(pointer, position)
            return _float_array(row, self._n_features) if row else None

    def features_first(self) -> int:
        """The first position from which on all features are kept."""
        return _get(pi_session_features_first, self)

    def length(self) -> int:
        """Tokens in the KV cache."""
        return _get(pi_session_length, self)

    def capacity(self) -> int:
        return _get(pi_session_capacity, self)

    def rewind(self, length: int) -> None:
        """Truncates to the first `length` tokens."""
        _Call(self).run(pi_session_rewind, self, length)

    def rewind_point(self, length: int) -> int:
        """The longest prefix of at most `length` tokens that rewind accepts."""
        return _get(pi_session_rewind_point, self, length)

    def remove(self, first: int, end: int = -1) -> None:
        """Removes tokens [first, end) and shifts the later ones down; -1: to the end."""
        _Call(self).run(pi_session_remove, self, first, end)

    def copy(self, source: "Session", length: int) -> None:
        """Replaces the content with the first `length` tokens of `source`."""
        _Call(self, source).run(pi_session_copy, self, source, length)

    def save(self, path: Path, tokens: Sequence[int]) -> None:
        """Writes the state of the first len(tokens) tokens, with their ids, to a file."""
        ids = (c_int32 * len(tokens))(*tokens)
        _Call(self).run(pi_session_save, self, _bytes(path), ids, len(tokens))

    def load(self, path: Path) -> List[int]:
        """Replaces the content with a saved state. Returns its tokens."""
        return self._loaded(pi_session_load, _bytes(path))

    def get_state(self, tokens: Sequence[int]) -> bytes:
        """The bytes that save writes."""
        ids = (c_int32 * len(tokens))(*tokens)
        n, call = c_size_t(), _Call(self)
        call.run(pi_session_get_state, self, ids, len(tokens), None, 0, byref(n),
                 allow=(PI_ERR_LIMIT,))
        data, size = call.sized(pi_session_get_state, c_char, n.value, self, ids, len(tokens))
        return data[:size]

    def set_state(self, data: bytes) -> List[int]:
        """Replaces the content with the bytes of get_state. Returns its tokens."""
        return self._loaded(pi_session_set_state, bytes(data), len(data))

    def _loaded(self, function: Any, *arguments: Any) -> List[int]:
        capacity, n = self.capacity(), c_int32()
        tokens = (c_int32 * capacity)()
        _Call(self).run(function, self, *arguments, tokens, capacity, byref(n))
        return tokens[:n.value]

    def state_id(self) -> int:
        return _get(pi_session_state_id, self)

    def range_bytes(self, n_tokens: int) -> int:
        return _get(pi_session_range_bytes, self, n_tokens)

    def recurrent_bytes(self) -> int:
        return _get(pi_session_recurrent_bytes, self)

    def get_range(self, first: int, n_tokens: int) -> bytes:
        """Keys and values of tokens [first, first + n_tokens)."""
        data = (c_char * (self.range_bytes(n_tokens) if n_tokens >= 0 else 0))()
        _Call(self).run(pi_session_get_range, self, first, n_tokens, data)
        return data.raw

    def get_recurrent(self, length: int) -> bytes:
        """The state of recurrent layers after `length` tokens."""
        data = (c_char * self.recurrent_bytes())()
        _Call(self).run(pi_session_get_recurrent, self, length, data)
        return data.raw

    def put_ranges(self, first: int, ranges: Sequence[SessionRange], tokens: Sequence[int],
                   recurrent: Optional[bytes] = None) -> None:
        """Puts ranges, [{"data": get_range(...), "n_tokens": n}, ...], after the first `first`
        tokens. tokens: the ids of all ranges."""
        given: List[Any] = list(ranges)
        if sum(r["n_tokens"] for r in given) != len(tokens):
            raise ValueError("as many tokens as the ranges have are needed")
        for r in given:
            if r["n_tokens"] < 0 or len(r["data"]) != self.range_bytes(r["n_tokens"]):
                raise ValueError("the bytes of a range do not fit its n_tokens")
        if recurrent is not None and len(recurrent) != self.recurrent_bytes():
            raise ValueError("the recurrent state has another size")
        call, ids = _Call(self), (c_int32 * len(tokens))(*tokens)
        values = call.array(pi_session_range, ranges)
        call.run(pi_session_put_ranges, self, first, values, len(values), ids, recurrent)


class Speculator(_Object):
    """Drafts tokens for speculative decoding."""

    def __init__(self, model: Model, draft_context: Optional[Context] = None,
                 chain: Sequence[Context] = (), **options: Any):
        """Options: the fields of SpeculatorOptions. draft_context: of the model that drafts; chain:
        of the heads after it."""
        call = _Call()
        parents = [model] + ([draft_context] if draft_context else []) + list(chain)
        if chain:
            options["chain"] = list(chain)
        values = {"n_texts": 1, "n_ctx": model.get_info().n_ctx_train, "model": model, **options}
        if draft_context:
            values["draft_context"], values["draft_model"] = draft_context, draft_context.model
        struct = call.options(pi_speculator_options, values)
        lock = draft_context._open().lock if draft_context else _Lock()
        self._n_texts = struct.n_texts
        self._samplers: Dict[int, _Handle] = {}  # of the texts; among the handle's parents
        self.draft_error: Optional[Error] = None  # of a draft model, which is not used any more
        self._handle = call.create(pi_speculator_create, pi_speculator_destroy, pi_speculator,
                                   parents, lock, byref(struct))

    def destroy(self) -> None:
        self.close()

    def begin(self, text: int, tokens: Sequence[int], sampler: Sampler) -> None:
        """Begins text number `text` with the tokens in its session. `sampler` samples the text."""
        self._check_text(text)
        ids = (c_int32 * len(tokens))(*tokens)
        call = _Call(self, sampler)
        with _Held(call.objects):
            call.run(pi_speculator_begin, self, text, ids, len(tokens), sampler)
            parents, before = self._open().parents, self._samplers.get(text)
            self._samplers[text] = sampler._open().use()
            parents.append(self._samplers[text])
            if before:
                parents.remove(before)
                before.release()

    def _check_text(self, text: int) -> None:
        if not 0 <= text < self._n_texts:
            raise IndexError("text %d of %d" % (text, self._n_texts))

    def forget(self, text: int) -> None:
        self._check_text(text)
        _get(pi_speculator_forget, self, text)

    def accept(self, text: int, token: int) -> bool:
        """Appends a sampled token to the text. True: it is the next one of the draft."""
        self._check_text(text)
        return _get(pi_speculator_accept, self, text, token)

    def draft(self, drafts: Sequence[Draft], n_others: int = 0) -> List[List[int]]:
        """Drafts for texts, [{"text": 0, "room": 16}, ...]: the tokens of each. A draft model that
        fails stores its error in draft_error."""
        for d in drafts:
            self._check_text(d.get("text", 0))
        call = _Call(self, *self._samplers.values())
        values = call.array(pi_draft, drafts)
        with _Held(call.objects):
            try:
                call.run(pi_speculator_draft, self, values, len(values), n_others)
            except Error as error:
                self.draft_error = error
            return [d.tokens[:d.n] for d in values]

    def measured(self, n_tokens: int, seconds: float) -> None:
        """Reports the time of a step with n_tokens tokens of all texts."""
        _get(pi_speculator_measured, self, n_tokens, seconds)

    def counts(self, text: int) -> DraftCounts:
        self._check_text(text)
        return _plain(_get(pi_speculator_counts, self, text))


# ---- functions -----------------------------------------------------------------------------------


def version() -> str:
    """The version of the library."""
    return _str(pi_version())


def status_name(status: int) -> str:
    return _str(pi_status_name(status))


def status_text(status: int) -> str:
    return _str(pi_status_text(status))


def pooling_name(pooling: int) -> str:
    return _str(pi_pooling_name(pooling))


def mapped_file(address: int) -> Optional[str]:
    """Path of the open model whose mapping contains an address, for SIGBUS handlers."""
    path = pi_mapped_file(c_void_p(address))
    return os.fsdecode(path) if path else None


def normalize(vector: "array.array[float]", norm: int = PI_NORM_EUCLID) -> "array.array[float]":
    """Divides a vector, an array of float32, by its norm, in place. Returns it."""
    pi_normalize(_floats(vector), len(vector), norm)
    return vector


def devices(folder: Optional[Path] = None, machine: Optional[Path] = None) -> List[Device]:
    """Lists the GPUs of every backend."""
    found, n = _Call().sized(pi_devices, pi_device, 16, folder and _bytes(folder),
                             machine and _bytes(machine))
    return [_plain(found[i]) for i in range(n)]


def convert(directory: Path, out_path: Path, **options: Unpack[ConvertOptions]) -> None:
    """Hugging Face folder to GGUF. Options: the fields of ConvertOptions."""
    call = _Call()
    values = call.options(pi_convert_options, options)
    call.run(pi_convert, _bytes(directory), _bytes(out_path), byref(values))


def quantize_type_name(name: str) -> Optional[str]:
    """The canonical name of a type: "Q4_K_M" for "q4_k_m"; None: unknown."""
    return _str(pi_quantize_type_name(_bytes(name))) or None


def quantize(in_path: Path, out_path: Optional[Path],
             **options: Unpack[QuantizeOptions]) -> QuantizeResult:
    """GGUF to GGUF of another type. Options: the fields of QuantizeOptions."""
    call, out = _Call(), pi_quantize_result()
    values = call.options(pi_quantize_options, options)
    call.run(pi_quantize, _bytes(in_path), out_path and _bytes(out_path), byref(values), byref(out))
    return _plain(out)


def imatrix(model_path: Path, text_path: Path, out_path: Path,
            **options: Unpack[ImatrixOptions]) -> None:
    """Importance matrix of a model. Options: the fields of ImatrixOptions."""
    call = _Call()
    values = call.options(pi_imatrix_options, options)
    call.run(pi_imatrix, _bytes(model_path), _bytes(text_path), _bytes(out_path), byref(values))


def prepare(in_path: Path, out_path: Path, **options: Unpack[PrepareOptions]) -> PrepareResult:
    """Prepares a model for sparse FFNs. Options: the fields of PrepareOptions."""
    call, out = _Call(), pi_prepare_result()
    values = call.options(pi_prepare_options, options)
    call.run(pi_prepare, _bytes(in_path), _bytes(out_path), byref(values), byref(out))
    return _plain(out)


def prepare_undo(in_path: Path, out_path: Path, **options: Unpack[PrepareOptions]) -> None:
    """Restores an ordinary GGUF. Options: the fields of PrepareOptions."""
    call = _Call()
    values = call.options(pi_prepare_options, options)
    call.run(pi_prepare_undo, _bytes(in_path), _bytes(out_path), byref(values))


def tune(in_path: Path, out_path: Path, **options: Unpack[TuneOptions]) -> TuneResult:
    """The fastest settings on this machine. Options: the fields of TuneOptions."""
    call, out = _Call(), pi_tune_result()
    values = call.options(pi_tune_options, options)
    call.run(pi_tune, _bytes(in_path), _bytes(out_path), byref(values), byref(out))
    return _plain(out)


def synth(out_path: Path, **options: Unpack[SynthOptions]) -> None:
    """A model with random weights. Options: the fields of SynthOptions."""
    call = _Call()
    values = call.options(pi_synth_options, options)
    call.run(pi_synth, _bytes(out_path), byref(values))


def inspect(path: Path, **options: Unpack[InspectOptions]) -> str:
    """A description of a GGUF file. Options: the fields of InspectOptions."""
    call = _Call()
    values = call.options(pi_inspect_options, options)
    return _written(call, pi_inspect, _bytes(path), byref(values))


def place(path: Optional[Path], **options: Unpack[PlaceOptions]) -> str:
    """The placement of a model on a machine. Options: the fields of PlaceOptions."""
    call = _Call()
    values = call.options(pi_place_options, options)
    return _written(call, pi_place, path and _bytes(path), byref(values))


def template_name(index: int) -> Optional[str]:
    """Names of the built-in chat templates; None after the last one."""
    return _str(pi_template_name(index)) or None


def template(request: Union[Text, Mapping[str, Any]], **options: Unpack[TemplateOptions]) -> str:
    """The prompt for a chat request. Options: the fields of TemplateOptions."""
    call = _Call()
    text = _bytes(json.dumps(request) if isinstance(request, Mapping) else request)
    values = call.options(pi_template_options, options)
    return _written(call, pi_template, text, len(text), byref(values))


def bench(model: Model, **options: Unpack[BenchOptions]) -> BenchReport:
    """Times prefill and decode. Options: the fields of BenchOptions."""
    call, out = _Call(model), pi_bench_report()
    values = call.options(pi_bench_options, options)
    call.run(pi_bench, model, byref(values), byref(out))
    return _plain(out)


def perplexity(model: Model, text: Optional[Text],
               **options: Unpack[PerplexityOptions]) -> PerplexityReport:
    """Perplexity of a text. Options: the fields of PerplexityOptions."""
    call, out = _Call(model), pi_perplexity_report()
    data = None if text is None else _bytes(text)
    values = call.options(pi_perplexity_options, options)
    call.run(pi_perplexity, model, data, len(data or b""), byref(values), byref(out))
    return _plain(out)
