// Structs, callbacks and functions of the C headers, for koffi; written by
// bindings/generate.py.
import koffi from 'koffi';

for (const name of [
    'pi_cluster',
    'pi_grammar',
    'pi_sampler',
    'pi_session',
    'pi_model',
    'pi_context',
    'pi_chat_template',
    'pi_generation',
    'pi_speculator',
]) koffi.opaque(name);
koffi.struct('tm', {
    tm_sec: 'int',
    tm_min: 'int',
    tm_hour: 'int',
    tm_mday: 'int',
    tm_mon: 'int',
    tm_year: 'int',
    tm_wday: 'int',
    tm_yday: 'int',
    tm_isdst: 'int',
    tm_gmtoff: 'long',
    tm_zone: 'str',
});

/* By name: koffi type, types of the fields, and for pointers the fields with their
   number of elements. */
export const structs = {};
export const callbacks = {};
const struct = (name, fields, counts = {}) => {
    structs[name] = { type: koffi.struct(name, fields), fields, counts };
};
const callback = (name, prototype) => {
    callbacks[name] = { type: koffi.pointer(koffi.proto(prototype)), prototype };
};

struct('pi_error', {
    status: 'int',
    message: 'char[512]',
});
struct('pi_layer_activity', {
    kind: 'int',
    n_units: 'int32_t',
    n_hot: 'int32_t',
    hot: 'uint64_t',
    bins: 'const uint32_t *',
});
callback('pi_cluster_options_lost', 'void pi_cluster_options_lost(void * user, const char * why)');
callback('pi_cluster_options_give_up', 'void pi_cluster_options_give_up(void * user, const char * why)');
struct('pi_cluster_options', {
    timeout: 'double',
    settings: 'const char *',
    split: 'float[64]',
    n_split: 'int32_t',
    lost: 'pi_cluster_options_lost *',
    give_up: 'pi_cluster_options_give_up *',
    user: 'void *',
});
struct('pi_rank', {
    host: 'const char *',
    first_layer: 'int32_t',
    end_layer: 'int32_t',
    weight_bytes: 'uint64_t',
    predicted_seconds: 'double',
    computing: 'double',
    waiting: 'double',
    sending: 'double',
    sent_bytes: 'uint64_t',
    ubatches: 'uint64_t',
});
struct('pi_grammar_schema', {
    rule: 'const char *',
    schema: 'const uint8_t *',
    n_schema: 'size_t',
    widen: 'bool',
    name: 'const char *',
    path: 'const char *',
}, { schema: 'n_schema' });
struct('pi_grammar_options', {
    root: 'const char *',
    schemas: 'const pi_grammar_schema *',
    n_schemas: 'size_t',
    trigger_words: 'const char **',
    n_trigger_words: 'size_t',
    trigger_tokens: 'const int32_t *',
    n_trigger_tokens: 'size_t',
}, { schemas: 'n_schemas', trigger_words: 'n_trigger_words', trigger_tokens: 'n_trigger_tokens' });
struct('pi_memory', {
    budget: 'uint64_t',
    needed: 'uint64_t',
    buffers: 'uint64_t',
    always: 'uint64_t',
    pinned: 'uint64_t',
    ring: 'uint64_t',
    cache: 'uint64_t',
    streamed: 'uint64_t',
    cached: 'uint64_t',
    reads: 'uint64_t',
    read_bytes: 'uint64_t',
    read_seconds: 'double',
    hits: 'uint64_t',
    misses: 'uint64_t',
    ahead: 'uint64_t',
    in_vain: 'uint64_t',
    backend: 'const char *',
});
struct('pi_metadata_override', {
    key: 'const char *',
    type: 'int',
    integer: 'int64_t',
    number: 'double',
    truth: 'bool',
    text: 'const char *',
});
struct('pi_adapter', {
    path: 'const char *',
    scale: 'float',
});
struct('pi_placement', {
    device: 'const char *',
    device_name: 'const char *',
    n_devices: 'int32_t',
    reason: 'const char *',
    status: 'int',
    n_layers: 'int32_t',
    gpu_layers: 'int32_t',
    head_on_gpu: 'bool',
    neuron_share: 'double',
    gpu_weights: 'uint64_t',
    gpu_scratch: 'uint64_t',
    gpu_kv: 'uint64_t',
    gpu_programs: 'uint64_t',
    gpu_runtime: 'uint64_t',
    gpu_budget: 'uint64_t',
});
struct('pi_device_placement', {
    name: 'const char *',
    index: 'int32_t',
    first_layer: 'int32_t',
    end_layer: 'int32_t',
    bytes: 'uint64_t',
    budget: 'uint64_t',
});
struct('pi_layer_placement', {
    attention_on_gpu: 'bool',
    device: 'int32_t',
    n_hot: 'int64_t',
    n_neurons: 'int64_t',
    n_own: 'int64_t',
});
struct('pi_logit_bias', {
    token: 'int32_t',
    bias: 'float',
});
struct('pi_sampler_options', {
    samplers: 'const int *',
    n_samplers: 'size_t',
    temp: 'float',
    dynatemp_range: 'float',
    dynatemp_exponent: 'float',
    top_k: 'int32_t',
    top_p: 'float',
    min_p: 'float',
    typical_p: 'float',
    top_n_sigma: 'float',
    repeat_penalty: 'float',
    repeat_last_n: 'int32_t',
    presence_penalty: 'float',
    frequency_penalty: 'float',
    xtc_probability: 'float',
    xtc_threshold: 'float',
    dry_multiplier: 'float',
    dry_base: 'float',
    dry_allowed_length: 'int32_t',
    dry_last_n: 'int32_t',
    dry_breakers: 'const char **',
    n_dry_breakers: 'size_t',
    mirostat: 'int32_t',
    mirostat_tau: 'float',
    mirostat_eta: 'float',
    logit_bias: 'const pi_logit_bias *',
    n_logit_bias: 'size_t',
    ignore_eos: 'bool',
    seed: 'uint64_t',
    grammar: 'pi_grammar *',
}, { samplers: 'n_samplers', dry_breakers: 'n_dry_breakers', logit_bias: 'n_logit_bias' });
struct('pi_session_range', {
    data: 'const void *',
    n_tokens: 'int32_t',
});
callback('pi_progress', 'bool pi_progress(void * user, const char * stage, double fraction)');
struct('pi_model_options', {
    no_mmap: 'bool',
    mlock: 'bool',
    vocab_only: 'bool',
    check_tensors: 'bool',
    pre: 'const char *',
    overrides: 'const pi_metadata_override *',
    adapters: 'const pi_adapter *',
    adapters_by_context: 'bool',
    n_overrides: 'size_t',
    n_adapters: 'size_t',
    progress: 'pi_progress *',
    progress_user: 'void *',
}, { overrides: 'n_overrides', adapters: 'n_adapters' });
struct('pi_model_info', {
    name: 'const char *',
    architecture: 'const char *',
    type: 'const char *',
    n_layer: 'int32_t',
    n_embd: 'int32_t',
    n_vocab: 'int32_t',
    n_ff: 'int32_t',
    n_head: 'int32_t',
    n_head_kv: 'int32_t',
    n_ctx_train: 'int32_t',
    n_params: 'uint64_t',
    weight_bytes: 'uint64_t',
    has_tokenizer: 'bool',
    token_bos: 'int32_t',
    token_eos: 'int32_t',
    add_bos: 'bool',
    recurrent: 'bool',
    n_draft_layer: 'int32_t',
    is_drafter: 'bool',
    n_features: 'int32_t',
});
struct('pi_context_options', {
    n_threads: 'int32_t',
    n_threads_batch: 'int32_t',
    pin_threads: 'bool',
    n_batch: 'int32_t',
    max_batch: 'int32_t',
    n_logits: 'int32_t',
    kernels: 'int',
    mode: 'int',
    head: 'int',
    max_loss: 'float',
    threshold: 'float',
    cache_k: 'int',
    cache_v: 'int',
    attn_blocks: 'int32_t',
    device: 'int',
    n_devices: 'int32_t',
    devices: 'int32_t[8]',
    tensor_split: 'float[8]',
    vram_budget: 'uint64_t',
    gpu_layers: 'int32_t',
    n_ctx: 'int32_t',
    ram_budget: 'uint64_t',
    expert_slack: 'float',
    backend_folder: 'const char *',
    machine: 'const char *',
    adapt: 'bool',
    overrides: 'const char **',
    n_overrides: 'int32_t',
    cpu_experts: 'int32_t',
    cpu_ffn: 'int32_t',
    cluster: 'pi_cluster *',
    deterministic: 'bool',
    timed_forms: 'bool',
    drafter: 'const pi_model *',
    cache_folder: 'const char *',
}, { overrides: 'n_overrides' });
struct('pi_input', {
    session: 'pi_session *',
    tokens: 'const int32_t *',
    n_tokens: 'int32_t',
    logits: 'int',
    hidden: 'int',
    n_drafts: 'int32_t',
    features: 'const float *',
}, { tokens: 'n_tokens' });
struct('pi_counters', {
    ubatches: 'uint64_t',
    tokens: 'uint64_t',
    weight_bytes: 'uint64_t',
    ffn_bytes: 'uint64_t',
    ffn_total_bytes: 'uint64_t',
    gathered_bytes: 'uint64_t',
    kv_bytes: 'uint64_t',
    expert_swaps: 'uint64_t',
    neuron_swaps: 'uint64_t',
    neuron_swap_bytes: 'uint64_t',
    active_neurons: 'uint64_t',
    active_gpu_neurons: 'uint64_t',
});
struct('pi_stop_text', {
    text: 'const uint8_t *',
    n_bytes: 'size_t',
}, { text: 'n_bytes' });
callback('pi_piece', 'bool pi_piece(void * user, int32_t token, const void * text, size_t n_bytes)');
struct('pi_generate_options', {
    prompt: 'const char *',
    tokens: 'const int32_t *',
    n_tokens: 'int32_t',
    sampler: 'pi_sampler *',
    max_tokens: 'int32_t',
    stops: 'const pi_stop_text *',
    n_stops: 'size_t',
    keep_stop: 'bool',
    shift: 'bool',
    n_keep: 'int32_t',
    speculator: 'pi_speculator *',
    piece: 'pi_piece *',
    progress: 'pi_progress *',
    user: 'void *',
}, { tokens: 'n_tokens', stops: 'n_stops' });
struct('pi_generated', {
    stop: 'int',
    session_full: 'bool',
    n_prompt: 'int32_t',
    n_cached: 'int32_t',
    n_tokens: 'int32_t',
    n_decoded: 'int32_t',
    n_steps: 'int32_t',
    n_shifts: 'int32_t',
    n_drafted: 'uint64_t',
    n_accepted: 'uint64_t',
    prompt_seconds: 'double',
    decode_seconds: 'double',
    draft_error: 'pi_error',
});
struct('pi_chat_template_options', {
    source: 'const uint8_t *',
    n_source: 'size_t',
    name: 'const char *',
    bos: 'const char *',
    eos: 'const char *',
    seconds: 'double',
}, { source: 'n_source' });
struct('pi_embed_text', {
    tokens: 'const int32_t *',
    n_tokens: 'int32_t',
}, { tokens: 'n_tokens' });
struct('pi_generation_options', {
    sampler: 'pi_sampler *',
    max_tokens: 'int32_t',
    stops: 'const pi_stop_text *',
    n_stops: 'size_t',
    keep_stop: 'bool',
    visible: 'const int32_t *',
    n_visible: 'size_t',
}, { stops: 'n_stops', visible: 'n_visible' });
struct('pi_sampled', {
    token: 'int32_t',
    end: 'bool',
    complete: 'bool',
});
struct('pi_released', {
    text: 'const void *',
    n_bytes: 'size_t',
    n_total: 'size_t',
    stop: 'int',
    stop_text: 'int32_t',
}, { text: 'n_bytes' });
struct('pi_speculator_options', {
    model: 'const pi_model *',
    ngrams: 'bool',
    draft_model: 'const pi_model *',
    draft_context: 'pi_context *',
    chain: 'pi_context **',
    n_chain: 'int32_t',
    n_texts: 'int32_t',
    n_ctx: 'int32_t',
    n_max: 'int32_t',
    n_min: 'int32_t',
    p_min: 'float',
    n_piece: 'int32_t',
}, { chain: 'n_chain' });
struct('pi_draft', {
    text: 'int32_t',
    room: 'int32_t',
    n_again: 'int32_t',
    session: 'const pi_session *',
    n: 'int32_t',
    tokens: 'const int32_t *',
});
struct('pi_draft_counts', {
    drafted: 'uint64_t',
    accepted: 'uint64_t',
});
callback('pi_message', 'void pi_message(void * user, const char * line)');
struct('pi_convert_options', {
    type: 'const char *',
    n_threads: 'int32_t',
    progress: 'pi_progress *',
    message: 'pi_message *',
    user: 'void *',
    base: 'const char *',
    predictors: 'const char *',
});
struct('pi_tensor_type', {
    pattern: 'const char *',
    type: 'const char *',
});
struct('pi_quantize_tensor', {
    name: 'char[64]',
    from: 'const char *',
    to: 'const char *',
    n_elems: 'uint64_t',
    bytes_in: 'uint64_t',
    bytes_out: 'uint64_t',
    fallback: 'bool',
    relative_rmse: 'float',
});
callback('pi_quantize_options_tensor', 'void pi_quantize_options_tensor(void * user, const pi_quantize_tensor * t)');
struct('pi_quantize_options', {
    type: 'const char *',
    pure: 'bool',
    allow_requantize: 'bool',
    leave_output: 'bool',
    output_type: 'const char *',
    embedding_type: 'const char *',
    tensor_types: 'const pi_tensor_type *',
    n_tensor_types: 'size_t',
    imatrix: 'const char *',
    chat_template: 'const uint8_t *',
    n_chat_template: 'size_t',
    measure: 'bool',
    dry_run: 'bool',
    n_threads: 'int32_t',
    tensor: 'pi_quantize_options_tensor *',
    progress: 'pi_progress *',
    message: 'pi_message *',
    user: 'void *',
}, { tensor_types: 'n_tensor_types', chat_template: 'n_chat_template' });
struct('pi_quantize_result', {
    n_tensors: 'uint64_t',
    n_quantized: 'uint64_t',
    n_fallback: 'uint64_t',
    n_elems: 'uint64_t',
    bytes_in: 'uint64_t',
    bytes_out: 'uint64_t',
});
struct('pi_imatrix_options', {
    chunk: 'int32_t',
    n_chunks: 'int32_t',
    process_output: 'bool',
    n_threads: 'int32_t',
    progress: 'pi_progress *',
    message: 'pi_message *',
    user: 'void *',
});
struct('pi_prepare_layer', {
    density: 'double',
    kind: 'const char *',
    rank: 'int32_t',
    recall: 'double',
    contribution_recall: 'double',
    selected: 'double',
    down: 'double',
});
callback('pi_prepare_options_layer', 'void pi_prepare_options_layer(void * user, int32_t index, const pi_prepare_layer * layer)');
struct('pi_prepare_options', {
    calibration: 'const char *',
    calibration_tokens: 'int32_t',
    calibration_window: 'int32_t',
    type: 'const char *',
    down_type: 'const char *',
    predictor: 'const char *',
    predictor_type: 'const char *',
    recall: 'double',
    max_loss: 'double',
    head: 'bool',
    seed: 'uint64_t',
    bundles: 'int',
    rearrange: 'bool',
    beside: 'const char *',
    n_threads: 'int32_t',
    layer: 'pi_prepare_options_layer *',
    progress: 'pi_progress *',
    message: 'pi_message *',
    user: 'void *',
});
struct('pi_prepare_result', {
    mode: 'const char *',
    tokens: 'int64_t',
    held_out: 'int64_t',
    density: 'double',
    ppl_before: 'double',
    ppl_after: 'double',
    kl: 'double',
    head_rank: 'int32_t',
    head_rows: 'double',
    head_bytes: 'double',
    head_loss: 'double',
    head_same: 'double',
    bytes_in: 'uint64_t',
    bytes_out: 'uint64_t',
    predictor_bytes: 'uint64_t',
});
struct('pi_tune_trial', {
    prepared: 'bool',
    mode: 'const char *',
    head: 'bool',
    threads: 'int32_t',
    attn_blocks: 'int32_t',
    tps: 'double',
    rounds: 'int32_t',
    bytes_per_token: 'double',
    loss: 'double',
    chosen: 'bool',
    reason: 'char[128]',
});
callback('pi_tune_options_trial', 'void pi_tune_options_trial(void * user, const pi_tune_trial * trial)');
struct('pi_tune_options', {
    context: 'pi_context_options',
    calibration: 'const char *',
    calibration_tokens: 'int32_t',
    max_loss: 'double',
    n_ctx: 'int32_t',
    trial: 'pi_tune_options_trial *',
    progress: 'pi_progress *',
    message: 'pi_message *',
    user: 'void *',
});
struct('pi_tune_result', {
    cpu: 'char[128]',
    before: 'pi_tune_trial',
    after: 'pi_tune_trial',
});
struct('pi_synth_options', {
    shape: 'const char *',
    type: 'const char *',
    n_layer: 'int32_t',
    density: 'float',
    down_density: 'float',
    skew_share: 'float',
    skew_mass: 'float',
    rank: 'int32_t',
    seed: 'uint64_t',
    plain: 'bool',
    bundle: 'bool',
    n_mtp: 'int32_t',
    n_threads: 'int32_t',
    progress: 'pi_progress *',
    user: 'void *',
});
struct('pi_inspect_options', {
    json: 'bool',
    verbose: 'bool',
    plan: 'bool',
    context: 'const pi_context_options *',
    svg: 'const char *',
});
struct('pi_place_options', {
    profile: 'const char *',
    device: 'int',
    n_devices: 'int32_t',
    devices: 'int32_t[8]',
    tensor_split: 'float[8]',
    backend_folder: 'const char *',
    measure: 'bool',
    cache: 'const char *',
    vram_budget: 'uint64_t',
    ram_budget: 'uint64_t',
    overrides: 'const char **',
    n_overrides: 'int32_t',
    cpu_experts: 'int32_t',
    cpu_ffn: 'int32_t',
    mode: 'int',
    max_loss: 'float',
    n_ctx: 'int32_t',
    depth: 'int32_t',
    n_batch: 'int32_t',
    max_batch: 'int32_t',
    cache_k: 'int',
    cache_v: 'int',
    n_threads: 'int32_t',
    synth: 'const pi_synth_options *',
    density: 'double',
    json: 'bool',
    svg: 'const char *',
    message: 'pi_message *',
    user: 'void *',
}, { overrides: 'n_overrides' });
struct('pi_template_options', {
    model: 'const char *',
    source: 'const uint8_t *',
    n_source: 'size_t',
    name: 'const char *',
    bos: 'const char *',
    eos: 'const char *',
    now: 'const tm *',
}, { source: 'n_source' });
struct('pi_device_failure', {
    call: 'char[64]',
    error: 'char[256]',
});
struct('pi_device', {
    backend: 'char[16]',
    index: 'int32_t',
    available: 'bool',
    shared_memory: 'bool',
    name: 'char[128]',
    arch: 'char[32]',
    memory_total: 'uint64_t',
    memory_free: 'uint64_t',
    bandwidth: 'double',
    reason: 'char[512]',
    driver: 'char[48]',
    measured_stream: 'double',
    measured_gather: 'double',
    measured_step: 'double',
    measured_sync: 'double',
    n_failures: 'int32_t',
    failures: 'pi_device_failure[4]',
});
struct('pi_trace_summary', {
    n_tokens: 'int32_t',
    seconds: 'double',
    cpu_seconds: 'double',
    gpu_seconds: 'double',
    both_seconds: 'double',
    overlap: 'double',
    n_split: 'int32_t',
    split_overlap: 'double',
    exchange_seconds: 'double',
    clock_error: 'double',
});
struct('pi_bench_options', {
    context: 'pi_context_options',
    prompts: 'int32_t[32]',
    n_prompts: 'int32_t',
    gens: 'int32_t[32]',
    n_gens: 'int32_t',
    depths: 'int32_t[32]',
    n_depths: 'int32_t',
    parallels: 'int32_t[32]',
    n_parallels: 'int32_t',
    repetitions: 'int32_t',
    delay_seconds: 'int32_t',
    tokens: 'const int32_t *',
    n_tokens: 'int32_t',
    speculator: 'pi_speculator *',
    drafts: 'const char *',
    temp: 'float',
    seed: 'uint64_t',
    model_path: 'const char *',
    trace: 'const char *',
    progress: 'pi_progress *',
    user: 'void *',
}, { tokens: 'n_tokens' });
struct('pi_bench_result', {
    test: 'char[16]',
    depth: 'int32_t',
    parallel: 'int32_t',
    mode: 'const char *',
    device: 'const char *',
    tps: 'double',
    tps_min: 'double',
    tps_max: 'double',
    tps_stddev: 'double',
    bytes_per_token: 'double',
    gathered_per_token: 'double',
    gbps: 'double',
    read_gbps: 'double',
    gather_gbps: 'double',
    bandwidth_share: 'double',
    floor_share: 'double',
    ffn_density: 'double',
    drive_reads: 'double',
    drive_bytes: 'double',
    drive_gbps: 'double',
    drive_share: 'double',
    drive_busy: 'double',
    cache_hits: 'double',
    cache_misses: 'double',
    drive_ahead: 'double',
    drive_in_vain: 'double',
    drafts: 'const char *',
    tokens_per_step: 'double',
    speedup: 'double',
    n_drafted: 'uint64_t',
    n_accepted: 'uint64_t',
});
struct('pi_bench_report', {
    cpu: 'char[128]',
    threads: 'int32_t',
    n_batch: 'int32_t',
    read_gbps: 'double',
    gather_gbps: 'double',
    yardstick_bytes: 'uint64_t',
    yardstick_wanted: 'uint64_t',
    cache_bytes: 'uint64_t',
    in_cache: 'bool',
    memory: 'pi_memory',
    n_ranks: 'int32_t',
    ranks: 'pi_rank[64]',
    n_traced: 'int32_t',
    traced: 'pi_trace_summary[2]',
    n_results: 'int32_t',
    results: 'pi_bench_result[2048]',
});
struct('pi_perplexity_options', {
    context: 'pi_context_options',
    n_ctx: 'int32_t',
    n_windows: 'int32_t',
    llama_windows: 'bool',
    stride: 'int32_t',
    base_out: 'const char *',
    base_in: 'const char *',
    progress: 'pi_progress *',
    message: 'pi_message *',
    user: 'void *',
});
struct('pi_divergence', {
    mean: 'double',
    mean_stderr: 'double',
    median: 'double',
    p90: 'double',
    p95: 'double',
    p99: 'double',
    p99_9: 'double',
    max: 'double',
    top1: 'double',
    p_diff_mean: 'double',
    p_diff_rms: 'double',
    base_nll: 'double',
    base_perplexity: 'double',
});
struct('pi_perplexity_report', {
    n_ctx: 'int32_t',
    n_windows: 'int32_t',
    tokens: 'int64_t',
    nll: 'double',
    perplexity: 'double',
    perplexity_stderr: 'double',
    has_divergence: 'bool',
    divergence: 'pi_divergence',
});

/* Prototypes of the functions. */
export const functions = {
    pi_status_name:
        'const char * pi_status_name(int status)',
    pi_status_text:
        'const char * pi_status_text(int status)',
    pi_context_watch:
        'int pi_context_watch(pi_context * context, int32_t n_bins, _Out_ pi_error * err)',
    pi_context_watched:
        'uint64_t pi_context_watched(const pi_context * context)',
    pi_context_get_activity:
        'void pi_context_get_activity(const pi_context * context, int32_t layer, _Out_ pi_layer_activity * out)',
    pi_cluster_default_options:
        'pi_cluster_options pi_cluster_default_options()',
    pi_cluster_open:
        'int pi_cluster_open(const pi_cluster_options * options, _Out_ pi_cluster ** out, _Out_ pi_error * err)',
    pi_cluster_close:
        'void pi_cluster_close(pi_cluster * cluster)',
    pi_cluster_fail:
        'void pi_cluster_fail(pi_cluster * cluster)',
    pi_cluster_rank:
        'int32_t pi_cluster_rank(const pi_cluster * cluster)',
    pi_cluster_size:
        'int32_t pi_cluster_size(const pi_cluster * cluster)',
    pi_cluster_receive:
        'int pi_cluster_receive(pi_cluster * cluster, const char * folder, const pi_model_options * options, _Out_ pi_model ** out, _Out_ pi_error * err)',
    pi_cluster_work:
        'int pi_cluster_work(pi_cluster * cluster, const pi_model * model, const pi_context_options * options, _Out_ pi_error * err)',
    pi_context_ranks:
        'int32_t pi_context_ranks(const pi_context * context)',
    pi_context_get_ranks:
        'int pi_context_get_ranks(pi_context * context, _Out_ pi_rank * out, _Out_ pi_error * err)',
    pi_grammar_create:
        'int pi_grammar_create(const pi_model * model, const uint8_t * gbnf, size_t n_gbnf, const pi_grammar_options * options, _Out_ pi_grammar ** out, _Out_ pi_error * err)',
    pi_grammar_from_schema:
        'int pi_grammar_from_schema(const pi_model * model, const uint8_t * schema, size_t n_schema, _Out_ pi_grammar ** out, _Out_ pi_error * err)',
    pi_grammar_free:
        'void pi_grammar_free(pi_grammar * grammar)',
    pi_grammar_retain:
        'pi_grammar * pi_grammar_retain(pi_grammar * grammar)',
    pi_grammar_memory:
        'size_t pi_grammar_memory(pi_grammar * grammar)',
    pi_grammar_widened:
        'const char * pi_grammar_widened(const pi_grammar * grammar, size_t i)',
    pi_grammar_match:
        'int pi_grammar_match(pi_grammar * grammar, const uint8_t * text, size_t n_text, _Out_ bool * begins, _Out_ bool * complete, _Out_ pi_error * err)',
    pi_sampler_grammar_progress:
        'int pi_sampler_grammar_progress(const pi_sampler * sampler, _Out_ pi_error * why)',
    pi_sampler_grammar_restart:
        'void pi_sampler_grammar_restart(pi_sampler * sampler)',
    pi_context_get_memory:
        'void pi_context_get_memory(const pi_context * context, _Out_ pi_memory * out)',
    pi_context_measure_drive:
        'int pi_context_measure_drive(const pi_context * context, uint64_t n_bytes, double seconds, _Out_ double * rate, _Out_ pi_error * err)',
    pi_model_n_metadata:
        'size_t pi_model_n_metadata(const pi_model * model)',
    pi_model_metadata_key:
        'int pi_model_metadata_key(const pi_model * model, size_t index, _Out_ uint8_t * text, size_t capacity, _Out_ size_t * n_bytes, _Out_ pi_error * err)',
    pi_model_metadata:
        'int pi_model_metadata(const pi_model * model, const char * key, _Out_ uint8_t * text, size_t capacity, _Out_ size_t * n_bytes, _Out_ pi_error * err)',
    pi_model_token:
        'int32_t pi_model_token(const pi_model * model, int role)',
    pi_context_get_placement:
        'void pi_context_get_placement(const pi_context * context, _Out_ pi_placement * out)',
    pi_context_get_device:
        'void pi_context_get_device(const pi_context * context, int32_t device, _Out_ pi_device_placement * out)',
    pi_context_get_layer:
        'void pi_context_get_layer(const pi_context * context, int32_t layer, _Out_ pi_layer_placement * out)',
    pi_sampler_default_options:
        'pi_sampler_options pi_sampler_default_options()',
    pi_sampler_create:
        'int pi_sampler_create(const pi_model * model, const pi_sampler_options * options, _Out_ pi_sampler ** out, _Out_ pi_error * err)',
    pi_sampler_destroy:
        'void pi_sampler_destroy(pi_sampler * sampler)',
    pi_sampler_accept:
        'void pi_sampler_accept(pi_sampler * sampler, int32_t token)',
    pi_sampler_sample:
        'int32_t pi_sampler_sample(pi_sampler * sampler, const float * logits)',
    pi_sampler_seed:
        'uint64_t pi_sampler_seed(const pi_sampler * sampler)',
    pi_session_create:
        'int pi_session_create(pi_context * context, int32_t n_ctx, _Out_ pi_session ** out, _Out_ pi_error * err)',
    pi_session_destroy:
        'void pi_session_destroy(pi_session * session)',
    pi_session_length:
        'int32_t pi_session_length(const pi_session * session)',
    pi_session_capacity:
        'int32_t pi_session_capacity(const pi_session * session)',
    pi_session_rewind:
        'int pi_session_rewind(pi_session * session, int32_t length, _Out_ pi_error * err)',
    pi_session_rewind_point:
        'int32_t pi_session_rewind_point(const pi_session * session, int32_t length)',
    pi_session_remove:
        'int pi_session_remove(pi_session * session, int32_t first, int32_t end, _Out_ pi_error * err)',
    pi_session_copy:
        'int pi_session_copy(pi_session * to, const pi_session * from, int32_t length, _Out_ pi_error * err)',
    pi_session_save:
        'int pi_session_save(const pi_session * session, const char * path, const int32_t * tokens, int32_t n_tokens, _Out_ pi_error * err)',
    pi_session_load:
        'int pi_session_load(pi_session * session, const char * path, _Out_ int32_t * tokens, int32_t capacity, _Out_ int32_t * n_tokens, _Out_ pi_error * err)',
    pi_session_get_state:
        'int pi_session_get_state(const pi_session * session, const int32_t * tokens, int32_t n_tokens, _Out_ uint8_t * data, size_t capacity, _Out_ size_t * n_bytes, _Out_ pi_error * err)',
    pi_session_set_state:
        'int pi_session_set_state(pi_session * session, const void * data, size_t n_bytes, _Out_ int32_t * tokens, int32_t capacity, _Out_ int32_t * n_tokens, _Out_ pi_error * err)',
    pi_session_state_id:
        'uint64_t pi_session_state_id(const pi_session * session)',
    pi_session_range_bytes:
        'size_t pi_session_range_bytes(const pi_session * session, int32_t n_tokens)',
    pi_session_recurrent_bytes:
        'size_t pi_session_recurrent_bytes(const pi_session * session)',
    pi_session_get_range:
        'int pi_session_get_range(const pi_session * session, int32_t first, int32_t n_tokens, _Out_ uint8_t * data, _Out_ pi_error * err)',
    pi_session_get_recurrent:
        'int pi_session_get_recurrent(const pi_session * session, int32_t length, _Out_ uint8_t * data, _Out_ pi_error * err)',
    pi_session_put_ranges:
        'int pi_session_put_ranges(pi_session * session, int32_t first, const pi_session_range * ranges, size_t n_ranges, const int32_t * tokens, const void * recurrent, _Out_ pi_error * err)',
    pi_version:
        'const char * pi_version()',
    pi_model_default_options:
        'pi_model_options pi_model_default_options()',
    pi_model_open:
        'int pi_model_open(const char * path, const pi_model_options * options, _Out_ pi_model ** out, _Out_ pi_error * err)',
    pi_model_open_memory:
        'int pi_model_open_memory(const void * data, size_t n_bytes, const pi_model_options * options, _Out_ pi_model ** out, _Out_ pi_error * err)',
    pi_model_close:
        'void pi_model_close(pi_model * model)',
    pi_mapped_file:
        'const char * pi_mapped_file(const void * address)',
    pi_model_get_info:
        'void pi_model_get_info(const pi_model * model, _Out_ pi_model_info * info)',
    pi_tokenize:
        'int pi_tokenize(const pi_model * model, const uint8_t * text, size_t n_text, uint32_t flags, _Out_ int32_t * tokens, size_t capacity, _Out_ size_t * n_tokens, _Out_ pi_error * err)',
    pi_token_text:
        'int pi_token_text(const pi_model * model, int32_t token, bool special, _Out_ uint8_t * text, size_t capacity, _Out_ size_t * n_bytes, _Out_ pi_error * err)',
    pi_detokenize:
        'int pi_detokenize(const pi_model * model, const int32_t * tokens, size_t n_tokens, bool special, _Out_ uint8_t * text, size_t capacity, _Out_ size_t * n_bytes, _Out_ pi_error * err)',
    pi_token_is_end:
        'bool pi_token_is_end(const pi_model * model, int32_t token)',
    pi_context_default_options:
        'pi_context_options pi_context_default_options()',
    pi_context_create:
        'int pi_context_create(const pi_model * model, const pi_context_options * options, _Out_ pi_context ** out, _Out_ pi_error * err)',
    pi_context_destroy:
        'void pi_context_destroy(pi_context * context)',
    pi_context_model:
        'const pi_model * pi_context_model(const pi_context * context)',
    pi_forward:
        'int pi_forward(pi_context * context, const pi_input * inputs, int32_t n_inputs, _Out_ pi_error * err)',
    pi_forward_begin:
        'int pi_forward_begin(pi_context * context, const pi_input * inputs, int32_t n_inputs, _Out_ pi_error * err)',
    pi_forward_end:
        'int pi_forward_end(pi_context * context, _Out_ pi_error * err)',
    pi_context_passes:
        'int32_t pi_context_passes(const pi_context * context)',
    pi_logits:
        'const float * pi_logits(const pi_context * context, int32_t row)',
    pi_logits_rows:
        'int32_t pi_logits_rows(const pi_context * context)',
    pi_hidden:
        'const float * pi_hidden(const pi_context * context, int32_t row)',
    pi_hidden_rows:
        'int32_t pi_hidden_rows(const pi_context * context)',
    pi_context_cancel:
        'void pi_context_cancel(pi_context * context)',
    pi_context_get_counters:
        'void pi_context_get_counters(const pi_context * context, _Out_ pi_counters * counters)',
    pi_context_kernels:
        'const char * pi_context_kernels(const pi_context * context)',
    pi_context_mode:
        'const char * pi_context_mode(const pi_context * context)',
    pi_context_loss:
        'double pi_context_loss(const pi_context * context)',
    pi_context_predicts_head:
        'bool pi_context_predicts_head(const pi_context * context, _Out_ double * loss)',
    pi_context_attn_blocks:
        'int32_t pi_context_attn_blocks(const pi_context * context)',
    pi_context_threads:
        'int32_t pi_context_threads(const pi_context * context)',
    pi_context_batch:
        'int32_t pi_context_batch(const pi_context * context)',
    pi_generate_default_options:
        'pi_generate_options pi_generate_default_options()',
    pi_generate:
        'int pi_generate(pi_context * context, pi_session * session, const pi_generate_options * options, _Out_ pi_generated * out, _Out_ pi_error * err)',
    pi_chat_template_create:
        'int pi_chat_template_create(const pi_model * model, const pi_chat_template_options * options, _Out_ pi_chat_template ** out, _Out_ pi_error * err)',
    pi_chat_template_free:
        'void pi_chat_template_free(pi_chat_template * t)',
    pi_chat_template_source:
        'const char * pi_chat_template_source(const pi_chat_template * t, bool tools)',
    pi_chat_template_render:
        'int pi_chat_template_render(const pi_chat_template * t, const uint8_t * request, size_t n_request, const tm * now, _Out_ void ** text, _Out_ size_t * n_text, _Out_ pi_error * err)',
    pi_text_free:
        'void pi_text_free(void * text)',
    pi_pooling_name:
        'const char * pi_pooling_name(int pooling)',
    pi_model_pooling:
        'int pi_model_pooling(const pi_model * model, _Out_ bool * named)',
    pi_model_is_encoder:
        'bool pi_model_is_encoder(const pi_model * model)',
    pi_embedding_width:
        'int32_t pi_embedding_width(const pi_model * model, int pooling)',
    pi_embed:
        'int pi_embed(pi_context * context, const pi_embed_text * texts, int32_t n_texts, int pooling, _Out_ float * out, _Out_ pi_error * err)',
    pi_normalize:
        'void pi_normalize(_Inout_ float * vector, int32_t n, int32_t norm)',
    pi_tokenize_pair:
        'int pi_tokenize_pair(const pi_model * model, const uint8_t * query, size_t n_query, const uint8_t * document, size_t n_document, _Out_ int32_t * tokens, size_t capacity, _Out_ size_t * n_tokens, _Out_ pi_error * err)',
    pi_generation_create:
        'int pi_generation_create(const pi_model * model, const pi_generation_options * options, _Out_ pi_generation ** out, _Out_ pi_error * err)',
    pi_generation_free:
        'void pi_generation_free(pi_generation * g)',
    pi_generation_sample:
        'int pi_generation_sample(pi_generation * g, const float * logits, _Out_ pi_sampled * out, _Out_ pi_error * err)',
    pi_generation_accept:
        'int pi_generation_accept(pi_generation * g, const pi_sampled * sampled, _Out_ pi_released * out, _Out_ pi_error * err)',
    pi_generation_end:
        'void pi_generation_end(pi_generation * g, int stop, _Out_ pi_released * out)',
    pi_model_open_drafter:
        'int pi_model_open_drafter(const pi_model * model, const char * path, int32_t layer, _Out_ pi_model ** out, _Out_ pi_error * err)',
    pi_session_features:
        'const float * pi_session_features(const pi_session * session, int32_t position)',
    pi_session_features_first:
        'int32_t pi_session_features_first(const pi_session * session)',
    pi_speculator_default_options:
        'pi_speculator_options pi_speculator_default_options()',
    pi_speculator_create:
        'int pi_speculator_create(const pi_speculator_options * options, _Out_ pi_speculator ** out, _Out_ pi_error * err)',
    pi_speculator_destroy:
        'void pi_speculator_destroy(pi_speculator * speculator)',
    pi_speculator_begin:
        'int pi_speculator_begin(pi_speculator * speculator, int32_t text, const int32_t * tokens, int32_t n_tokens, const pi_sampler * sampler, _Out_ pi_error * err)',
    pi_speculator_forget:
        'void pi_speculator_forget(pi_speculator * speculator, int32_t text)',
    pi_speculator_accept:
        'bool pi_speculator_accept(pi_speculator * speculator, int32_t text, int32_t token)',
    pi_speculator_draft:
        'int pi_speculator_draft(pi_speculator * speculator, _Inout_ pi_draft * drafts, int32_t n, int32_t n_others, _Out_ pi_error * err)',
    pi_speculator_measured:
        'void pi_speculator_measured(pi_speculator * speculator, int32_t n_tokens, double seconds)',
    pi_speculator_counts:
        'pi_draft_counts pi_speculator_counts(const pi_speculator * speculator, int32_t text)',
    pi_sampler_clone:
        'int pi_sampler_clone(const pi_sampler * from, _Out_ pi_sampler ** out, _Out_ pi_error * err)',
    pi_sampler_copy:
        'void pi_sampler_copy(pi_sampler * to, const pi_sampler * from)',
    pi_convert_default_options:
        'pi_convert_options pi_convert_default_options()',
    pi_convert:
        'int pi_convert(const char * dir, const char * out_path, const pi_convert_options * options, _Out_ pi_error * err)',
    pi_quantize_default_options:
        'pi_quantize_options pi_quantize_default_options()',
    pi_quantize_type_name:
        'const char * pi_quantize_type_name(const char * name)',
    pi_quantize:
        'int pi_quantize(const char * in_path, const char * out_path, const pi_quantize_options * options, _Out_ pi_quantize_result * result, _Out_ pi_error * err)',
    pi_imatrix_default_options:
        'pi_imatrix_options pi_imatrix_default_options()',
    pi_imatrix:
        'int pi_imatrix(const char * model_path, const char * text_path, const char * out_path, const pi_imatrix_options * options, _Out_ pi_error * err)',
    pi_prepare_default_options:
        'pi_prepare_options pi_prepare_default_options()',
    pi_prepare:
        'int pi_prepare(const char * in, const char * out_path, const pi_prepare_options * options, _Out_ pi_prepare_result * result, _Out_ pi_error * err)',
    pi_prepare_undo:
        'int pi_prepare_undo(const char * in_path, const char * out_path, const pi_prepare_options * options, _Out_ pi_error * err)',
    pi_tune_default_options:
        'pi_tune_options pi_tune_default_options()',
    pi_tune:
        'int pi_tune(const char * in, const char * out_path, const pi_tune_options * options, _Out_ pi_tune_result * result, _Out_ pi_error * err)',
    pi_synth_default_options:
        'pi_synth_options pi_synth_default_options()',
    pi_synth:
        'int pi_synth(const char * out_path, const pi_synth_options * options, _Out_ pi_error * err)',
    pi_inspect:
        'int pi_inspect(const char * path, const pi_inspect_options * options, void * out, _Out_ pi_error * err)',
    pi_place_default_options:
        'pi_place_options pi_place_default_options()',
    pi_place:
        'int pi_place(const char * path, const pi_place_options * options, void * out, _Out_ pi_error * err)',
    pi_template_name:
        'const char * pi_template_name(size_t index)',
    pi_template:
        'int pi_template(const uint8_t * request, size_t n_request, const pi_template_options * options, void * out, _Out_ pi_error * err)',
    pi_devices:
        'int pi_devices(const char * folder, const char * machine, _Out_ pi_device * devices, size_t capacity, _Out_ size_t * n_devices, _Out_ pi_error * err)',
    pi_trace_start:
        'int pi_trace_start(pi_context * context, int32_t n_ubatches, _Out_ pi_error * err)',
    pi_trace_write:
        'int pi_trace_write(const pi_context * context, const char * path, _Out_ pi_trace_summary * summaries, int32_t capacity, _Out_ int32_t * n_ubatches, _Out_ pi_error * err)',
    pi_bench_default_options:
        'pi_bench_options pi_bench_default_options()',
    pi_bench:
        'int pi_bench(const pi_model * model, const pi_bench_options * options, _Out_ pi_bench_report * report, _Out_ pi_error * err)',
    pi_perplexity_default_options:
        'pi_perplexity_options pi_perplexity_default_options()',
    pi_perplexity:
        'int pi_perplexity(const pi_model * model, const uint8_t * text, size_t n_text, const pi_perplexity_options * options, _Out_ pi_perplexity_report * report, _Out_ pi_error * err)',
};
