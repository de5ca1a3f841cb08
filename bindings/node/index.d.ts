/* Types of powerinfer for Node. Names are those of the C headers without the prefix; the headers say
 * what the functions and fields mean. Fields of options have the defaults of the C library. */

/* Beyond 2^53 a BigInt. */
export type Integer = number | bigint;
export type Text = string | Uint8Array;
export type Numbers = readonly number[] | Int32Array | Float32Array;
/* Return false to cancel. */
export type Progress = (stage: string, fraction: number) => boolean | void;
/* Return false to stop. Text that is left at the end comes with token -1. */
export type Piece = (token: number, text: string) => boolean | void;
export type Message = (line: string) => void;
export interface WithSignal {
    /* Ends the call between two tokens or parts of the work; the promise is rejected with the
       signal's reason. */
    signal?: AbortSignal;
}
export interface ChatRequest {
    messages: object[];
    tools?: object[];
    add_generation_prompt?: boolean;
    [key: string]: unknown;
}

// ---- generated from include/*.h by bindings/generate.py ----
export const PI_OK: 0;
export const PI_ERR_NOMEM: 1;
export const PI_ERR_IO: 2;
export const PI_ERR_FORMAT: 3;
export const PI_ERR_UNSUPPORTED: 4;
export const PI_ERR_ARG: 5;
export const PI_ERR_RANGE: 6;
export const PI_ERR_LIMIT: 7;
export const PI_ERR_NOT_FOUND: 8;
export const PI_ERR_DEVICE: 9;
export const PI_ERR_CANCELLED: 10;
export const PI_STATUS_COUNT: 11;
export const PI_ERROR_TEXT_MAX: 512;
export const PI_ACTIVITY_MAX_BINS: 1024;
export const PI_ACTIVITY_DENSE: 0;
export const PI_ACTIVITY_NEURONS: 1;
export const PI_ACTIVITY_EXPERTS: 2;
export const PI_MAX_RANKS: 64;
export const PI_GRAMMAR_NONE: 0;
export const PI_GRAMMAR_WAITING: 1;
export const PI_GRAMMAR_OPEN: 2;
export const PI_GRAMMAR_MAY_END: 3;
export const PI_GRAMMAR_COMPLETE: 4;
export const PI_GRAMMAR_FAILED: 5;
export const PI_VALUE_INT: 0;
export const PI_VALUE_FLOAT: 1;
export const PI_VALUE_BOOL: 2;
export const PI_VALUE_TEXT: 3;
export const PI_TOKEN_BOS: 0;
export const PI_TOKEN_EOS: 1;
export const PI_TOKEN_EOT: 2;
export const PI_TOKEN_EOM: 3;
export const PI_TOKEN_UNK: 4;
export const PI_TOKEN_SEP: 5;
export const PI_TOKEN_PAD: 6;
export const PI_TOKEN_MASK: 7;
export const PI_TOKEN_NL: 8;
export const PI_TOKEN_FIM_PRE: 9;
export const PI_TOKEN_FIM_SUF: 10;
export const PI_TOKEN_FIM_MID: 11;
export const PI_TOKEN_FIM_PAD: 12;
export const PI_TOKEN_FIM_REP: 13;
export const PI_TOKEN_FIM_SEP: 14;
export const PI_TOKEN_ROLES: 15;
export const PI_SAMPLER_PENALTIES: 0;
export const PI_SAMPLER_DRY: 1;
export const PI_SAMPLER_TOP_N_SIGMA: 2;
export const PI_SAMPLER_TOP_K: 3;
export const PI_SAMPLER_TYPICAL: 4;
export const PI_SAMPLER_TOP_P: 5;
export const PI_SAMPLER_MIN_P: 6;
export const PI_SAMPLER_XTC: 7;
export const PI_SAMPLER_TEMPERATURE: 8;
export const PI_SAMPLER_KINDS: 9;
export const PI_SAMPLER_CHAIN_MAX: 32;
export const PI_TOKENIZE_BOS: 1;
export const PI_TOKENIZE_FORCE_BOS: 2;
export const PI_TOKENIZE_SPECIAL: 4;
export const PI_TOKENIZE_STOP: 8;
export const PI_KERNELS_AUTO: 0;
export const PI_KERNELS_SCALAR: 1;
export const PI_KERNELS_AVX2: 2;
export const PI_KERNELS_AVX512: 3;
export const PI_KERNELS_NEON: 4;
export const PI_MODE_AUTO: 0;
export const PI_MODE_DENSE: 1;
export const PI_MODE_EXACT: 2;
export const PI_MODE_PREDICT: 3;
export const PI_MODE_THRESHOLD: 4;
export const PI_HEAD_AUTO: 0;
export const PI_HEAD_DENSE: 1;
export const PI_HEAD_PREDICT: 2;
export const PI_CACHE_F16: 0;
export const PI_CACHE_F32: 1;
export const PI_CACHE_Q8_0: 2;
export const PI_CACHE_BF16: 3;
export const PI_CACHE_Q4_0: 4;
export const PI_CACHE_Q4_1: 5;
export const PI_CACHE_Q5_0: 6;
export const PI_CACHE_Q5_1: 7;
export const PI_CACHE_IQ4_NL: 8;
export const PI_DEVICE_AUTO: 0;
export const PI_DEVICE_CPU: 1;
export const PI_DEVICE_CUDA: 2;
export const PI_DEVICE_HIP: 3;
export const PI_DEVICE_VULKAN: 4;
export const PI_DEVICE_SIM: 5;
export const PI_DEVICE_COUNT: 6;
export const PI_MAX_DEVICES: 8;
export const PI_DEVICES_AS_NEEDED: -1;
export const PI_ATTN_BLOCKS_AUTO: -1;
export const PI_MAX_BATCH: 8192;
export const PI_LOGITS_NONE: 0;
export const PI_LOGITS_LAST: 1;
export const PI_LOGITS_ALL: 2;
export const PI_HIDDEN_NONE: 0;
export const PI_HIDDEN_LAST: 1;
export const PI_HIDDEN_ALL: 2;
export const PI_STOP_NONE: 0;
export const PI_STOP_EOS: 1;
export const PI_STOP_LENGTH: 2;
export const PI_STOP_TEXT: 3;
export const PI_STOP_CANCELLED: 4;
export const PI_STOP_TEXTS: 64;
export const PI_STOP_TEXT_BYTES: 1024;
export const PI_POOLING_NONE: 0;
export const PI_POOLING_MEAN: 1;
export const PI_POOLING_CLS: 2;
export const PI_POOLING_LAST: 3;
export const PI_POOLING_RANK: 4;
export const PI_POOLING_MODEL: 5;
export const PI_NORM_NONE: -1;
export const PI_NORM_INT16: 0;
export const PI_NORM_TAXICAB: 1;
export const PI_NORM_EUCLID: 2;
export const PI_DRAFT_MAX: 64;
export const PI_DRAFT_HEADS: 16;
export const PI_SPECULATE_TEXTS: 256;
export const PI_BUNDLES_KEEP: 0;
export const PI_BUNDLES_NONE: 1;
export const PI_BUNDLES_ALL: 2;
export const PI_TUNE_LONG: 4096;
export const PI_DEVICE_FAILURES: 4;
export const PI_BENCH_MAX_LIST: 32;
export const PI_BENCH_TRACED: 2;
export const PI_VERSION_MAJOR: 0;
export const PI_VERSION_MINOR: 1;
export const PI_VERSION_PATCH: 0;
export const PI_VRAM_FREE: bigint;
export const PI_CHAT_TEMPLATE_PLAIN: string;
export const PI_RAM_FREE: bigint;
export const PI_RAM_MAPPED: 0;
export const PI_PLACE_ALL: bigint;

export interface LayerActivity {
    kind: number;
    n_units: number;
    n_hot: number;
    hot: Integer;
    bins: number[];
}

export interface ClusterOptions {
    timeout?: number;
    settings?: Text | null;
    split?: Numbers;
    n_split?: number;
    lost?: (...args: any[]) => void;
    give_up?: (...args: any[]) => void;
}

export interface Rank {
    host: string | null;
    first_layer: number;
    end_layer: number;
    weight_bytes: Integer;
    predicted_seconds: number;
    computing: number;
    waiting: number;
    sending: number;
    sent_bytes: Integer;
    ubatches: Integer;
}

export interface GrammarSchema {
    rule?: Text | null;
    schema?: Text | null;
    widen?: boolean;
    name?: Text | null;
    path?: Text | null;
}

export interface GrammarOptions {
    root?: Text | null;
    schemas?: GrammarSchema[];
    trigger_words?: Text[];
    trigger_tokens?: Numbers;
}

export interface Memory {
    budget: Integer;
    needed: Integer;
    buffers: Integer;
    always: Integer;
    pinned: Integer;
    ring: Integer;
    cache: Integer;
    streamed: Integer;
    cached: Integer;
    reads: Integer;
    read_bytes: Integer;
    read_seconds: number;
    hits: Integer;
    misses: Integer;
    ahead: Integer;
    in_vain: Integer;
    backend: string | null;
}

export interface MetadataOverride {
    key?: Text | null;
    type?: number;
    integer?: Integer;
    number?: number;
    truth?: boolean;
    text?: Text | null;
}

export interface Adapter {
    path?: Text | null;
    scale?: number;
}

export interface Placement {
    device: string | null;
    device_name: string | null;
    n_devices: number;
    reason: string | null;
    status: number;
    n_layers: number;
    gpu_layers: number;
    head_on_gpu: boolean;
    neuron_share: number;
    gpu_weights: Integer;
    gpu_scratch: Integer;
    gpu_kv: Integer;
    gpu_programs: Integer;
    gpu_runtime: Integer;
    gpu_budget: Integer;
}

export interface DevicePlacement {
    name: string | null;
    index: number;
    first_layer: number;
    end_layer: number;
    bytes: Integer;
    budget: Integer;
}

export interface LayerPlacement {
    attention_on_gpu: boolean;
    device: number;
    n_hot: Integer;
    n_neurons: Integer;
    n_own: Integer;
}

export interface LogitBias {
    token?: number;
    bias?: number;
}

export interface SamplerOptions {
    samplers?: Numbers;
    temp?: number;
    dynatemp_range?: number;
    dynatemp_exponent?: number;
    top_k?: number;
    top_p?: number;
    min_p?: number;
    typical_p?: number;
    top_n_sigma?: number;
    repeat_penalty?: number;
    repeat_last_n?: number;
    presence_penalty?: number;
    frequency_penalty?: number;
    xtc_probability?: number;
    xtc_threshold?: number;
    dry_multiplier?: number;
    dry_base?: number;
    dry_allowed_length?: number;
    dry_last_n?: number;
    dry_breakers?: Text[];
    mirostat?: number;
    mirostat_tau?: number;
    mirostat_eta?: number;
    logit_bias?: LogitBias[];
    ignore_eos?: boolean;
    seed?: Integer;
    grammar?: Grammar | null;
}

export interface SessionRange {
    data?: Uint8Array;
    n_tokens?: number;
}

export interface ModelOptions {
    no_mmap?: boolean;
    mlock?: boolean;
    vocab_only?: boolean;
    check_tensors?: boolean;
    pre?: Text | null;
    overrides?: MetadataOverride[];
    adapters?: Adapter[];
    adapters_by_context?: boolean;
    progress?: Progress;
}

export interface ModelInfo {
    name: string | null;
    architecture: string | null;
    type: string | null;
    n_layer: number;
    n_embd: number;
    n_vocab: number;
    n_ff: number;
    n_head: number;
    n_head_kv: number;
    n_ctx_train: number;
    n_params: Integer;
    weight_bytes: Integer;
    has_tokenizer: boolean;
    token_bos: number;
    token_eos: number;
    add_bos: boolean;
    recurrent: boolean;
    n_draft_layer: number;
    is_drafter: boolean;
    n_features: number;
}

export interface ContextOptions {
    n_threads?: number;
    n_threads_batch?: number;
    pin_threads?: boolean;
    n_batch?: number;
    max_batch?: number;
    n_logits?: number;
    kernels?: number;
    mode?: number;
    head?: number;
    max_loss?: number;
    threshold?: number;
    cache_k?: number;
    cache_v?: number;
    attn_blocks?: number;
    device?: number;
    n_devices?: number;
    devices?: Numbers;
    tensor_split?: Numbers;
    vram_budget?: Integer;
    gpu_layers?: number;
    n_ctx?: number;
    ram_budget?: Integer;
    expert_slack?: number;
    backend_folder?: Text | null;
    machine?: Text | null;
    adapt?: boolean;
    overrides?: Text[];
    cpu_experts?: number;
    cpu_ffn?: number;
    cluster?: Cluster | null;
    deterministic?: boolean;
    timed_forms?: boolean;
    drafter?: Model | null;
    cache_folder?: Text | null;
}

export interface Input {
    session?: Session | null;
    tokens?: Numbers;
    logits?: number;
    hidden?: number;
    n_drafts?: number;
    features?: Numbers;
}

export interface Counters {
    ubatches: Integer;
    tokens: Integer;
    weight_bytes: Integer;
    ffn_bytes: Integer;
    ffn_total_bytes: Integer;
    gathered_bytes: Integer;
    kv_bytes: Integer;
    expert_swaps: Integer;
    neuron_swaps: Integer;
    neuron_swap_bytes: Integer;
    active_neurons: Integer;
    active_gpu_neurons: Integer;
}

export interface StopText {
    text?: Text | null;
}

export interface GenerateOptions {
    prompt?: Text | null;
    tokens?: Numbers;
    sampler?: Sampler | null;
    max_tokens?: number;
    stops?: (StopText | string)[];
    keep_stop?: boolean;
    shift?: boolean;
    n_keep?: number;
    speculator?: Speculator | null;
    piece?: Piece;
    progress?: Progress;
}

export interface Generated {
    stop: number;
    session_full: boolean;
    n_prompt: number;
    n_cached: number;
    n_tokens: number;
    n_decoded: number;
    n_steps: number;
    n_shifts: number;
    n_drafted: Integer;
    n_accepted: Integer;
    prompt_seconds: number;
    decode_seconds: number;
    draft_error: PowerInferError | null;
}

export interface ChatTemplateOptions {
    source?: Text | null;
    name?: Text | null;
    bos?: Text | null;
    eos?: Text | null;
    seconds?: number;
}

export interface EmbedText {
    tokens?: Numbers;
}

export interface GenerationOptions {
    sampler?: Sampler | null;
    max_tokens?: number;
    stops?: (StopText | string)[];
    keep_stop?: boolean;
    visible?: Numbers;
}

export interface Sampled {
    token: number;
    end: boolean;
    complete: boolean;
}

export interface SpeculatorOptions {
    model?: Model | null;
    ngrams?: boolean;
    draft_model?: Model | null;
    draft_context?: Context | null;
    chain?: Context[];
    n_texts?: number;
    n_ctx?: number;
    n_max?: number;
    n_min?: number;
    p_min?: number;
    n_piece?: number;
}

export interface Draft {
    text?: number;
    room?: number;
    n_again?: number;
    session?: Session | null;
    n?: number;
    tokens?: Numbers;
}

export interface DraftCounts {
    drafted: Integer;
    accepted: Integer;
}

export interface ConvertOptions {
    type?: Text | null;
    n_threads?: number;
    progress?: Progress;
    message?: Message;
    base?: Text | null;
    predictors?: Text | null;
}

export interface TensorType {
    pattern?: Text | null;
    type?: Text | null;
}

export interface QuantizeTensor {
    name: string;
    from: string | null;
    to: string | null;
    n_elems: Integer;
    bytes_in: Integer;
    bytes_out: Integer;
    fallback: boolean;
    relative_rmse: number;
}

export interface QuantizeOptions {
    type?: Text | null;
    pure?: boolean;
    allow_requantize?: boolean;
    leave_output?: boolean;
    output_type?: Text | null;
    embedding_type?: Text | null;
    tensor_types?: TensorType[];
    imatrix?: Text | null;
    chat_template?: Text | null;
    measure?: boolean;
    dry_run?: boolean;
    n_threads?: number;
    tensor?: (...args: any[]) => void;
    progress?: Progress;
    message?: Message;
}

export interface QuantizeResult {
    n_tensors: Integer;
    n_quantized: Integer;
    n_fallback: Integer;
    n_elems: Integer;
    bytes_in: Integer;
    bytes_out: Integer;
}

export interface ImatrixOptions {
    chunk?: number;
    n_chunks?: number;
    process_output?: boolean;
    n_threads?: number;
    progress?: Progress;
    message?: Message;
}

export interface PrepareLayer {
    density: number;
    kind: string | null;
    rank: number;
    recall: number;
    contribution_recall: number;
    selected: number;
    down: number;
}

export interface PrepareOptions {
    calibration?: Text | null;
    calibration_tokens?: number;
    calibration_window?: number;
    type?: Text | null;
    down_type?: Text | null;
    predictor?: Text | null;
    predictor_type?: Text | null;
    recall?: number;
    max_loss?: number;
    head?: boolean;
    seed?: Integer;
    bundles?: number;
    rearrange?: boolean;
    beside?: Text | null;
    n_threads?: number;
    layer?: (...args: any[]) => void;
    progress?: Progress;
    message?: Message;
}

export interface PrepareResult {
    mode: string | null;
    tokens: Integer;
    held_out: Integer;
    density: number;
    ppl_before: number;
    ppl_after: number;
    kl: number;
    head_rank: number;
    head_rows: number;
    head_bytes: number;
    head_loss: number;
    head_same: number;
    bytes_in: Integer;
    bytes_out: Integer;
    predictor_bytes: Integer;
}

export interface TuneTrial {
    prepared: boolean;
    mode: string | null;
    head: boolean;
    threads: number;
    attn_blocks: number;
    tps: number;
    rounds: number;
    bytes_per_token: number;
    loss: number;
    chosen: boolean;
    reason: string;
}

export interface TuneOptions {
    context?: ContextOptions;
    calibration?: Text | null;
    calibration_tokens?: number;
    max_loss?: number;
    n_ctx?: number;
    trial?: (...args: any[]) => void;
    progress?: Progress;
    message?: Message;
}

export interface TuneResult {
    cpu: string;
    before: TuneTrial;
    after: TuneTrial;
}

export interface SynthOptions {
    shape?: Text | null;
    type?: Text | null;
    n_layer?: number;
    density?: number;
    down_density?: number;
    skew_share?: number;
    skew_mass?: number;
    rank?: number;
    seed?: Integer;
    plain?: boolean;
    bundle?: boolean;
    n_mtp?: number;
    n_threads?: number;
    progress?: Progress;
}

export interface InspectOptions {
    json?: boolean;
    verbose?: boolean;
    plan?: boolean;
    context?: ContextOptions;
    svg?: Text | null;
}

export interface PlaceOptions {
    profile?: Text | null;
    device?: number;
    n_devices?: number;
    devices?: Numbers;
    tensor_split?: Numbers;
    backend_folder?: Text | null;
    measure?: boolean;
    cache?: Text | null;
    vram_budget?: Integer;
    ram_budget?: Integer;
    overrides?: Text[];
    cpu_experts?: number;
    cpu_ffn?: number;
    mode?: number;
    max_loss?: number;
    n_ctx?: number;
    depth?: number;
    n_batch?: number;
    max_batch?: number;
    cache_k?: number;
    cache_v?: number;
    n_threads?: number;
    synth?: SynthOptions;
    density?: number;
    json?: boolean;
    svg?: Text | null;
    message?: Message;
}

export interface TemplateOptions {
    model?: Text | null;
    source?: Text | null;
    name?: Text | null;
    bos?: Text | null;
    eos?: Text | null;
    now?: Date;
}

export interface DeviceFailure {
    call: string;
    error: string;
}

export interface Device {
    backend: string;
    index: number;
    available: boolean;
    shared_memory: boolean;
    name: string;
    arch: string;
    memory_total: Integer;
    memory_free: Integer;
    bandwidth: number;
    reason: string;
    driver: string;
    measured_stream: number;
    measured_gather: number;
    measured_step: number;
    measured_sync: number;
    n_failures: number;
    failures: DeviceFailure[];
}

export interface TraceSummary {
    n_tokens: number;
    seconds: number;
    cpu_seconds: number;
    gpu_seconds: number;
    both_seconds: number;
    overlap: number;
    n_split: number;
    split_overlap: number;
    exchange_seconds: number;
    clock_error: number;
}

export interface BenchOptions {
    context?: ContextOptions;
    prompts?: Numbers;
    n_prompts?: number;
    gens?: Numbers;
    n_gens?: number;
    depths?: Numbers;
    n_depths?: number;
    parallels?: Numbers;
    n_parallels?: number;
    repetitions?: number;
    delay_seconds?: number;
    tokens?: Numbers;
    speculator?: Speculator | null;
    drafts?: Text | null;
    temp?: number;
    seed?: Integer;
    model_path?: Text | null;
    trace?: Text | null;
    progress?: Progress;
}

export interface BenchResult {
    test: string;
    depth: number;
    parallel: number;
    mode: string | null;
    device: string | null;
    tps: number;
    tps_min: number;
    tps_max: number;
    tps_stddev: number;
    bytes_per_token: number;
    gathered_per_token: number;
    gbps: number;
    read_gbps: number;
    gather_gbps: number;
    bandwidth_share: number;
    floor_share: number;
    ffn_density: number;
    drive_reads: number;
    drive_bytes: number;
    drive_gbps: number;
    drive_share: number;
    drive_busy: number;
    cache_hits: number;
    cache_misses: number;
    drive_ahead: number;
    drive_in_vain: number;
    drafts: string | null;
    tokens_per_step: number;
    speedup: number;
    n_drafted: Integer;
    n_accepted: Integer;
}

export interface BenchReport {
    cpu: string;
    threads: number;
    n_batch: number;
    read_gbps: number;
    gather_gbps: number;
    yardstick_bytes: Integer;
    yardstick_wanted: Integer;
    cache_bytes: Integer;
    in_cache: boolean;
    memory: Memory;
    n_ranks: number;
    ranks: Rank[];
    n_traced: number;
    traced: TraceSummary[];
    n_results: number;
    results: BenchResult[];
}

export interface PerplexityOptions {
    context?: ContextOptions;
    n_ctx?: number;
    n_windows?: number;
    llama_windows?: boolean;
    stride?: number;
    base_out?: Text | null;
    base_in?: Text | null;
    progress?: Progress;
    message?: Message;
}

export interface Divergence {
    mean: number;
    mean_stderr: number;
    median: number;
    p90: number;
    p95: number;
    p99: number;
    p99_9: number;
    max: number;
    top1: number;
    p_diff_mean: number;
    p_diff_rms: number;
    base_nll: number;
    base_perplexity: number;
}

export interface PerplexityReport {
    n_ctx: number;
    n_windows: number;
    tokens: Integer;
    nll: number;
    perplexity: number;
    perplexity_stderr: number;
    has_divergence: boolean;
    divergence: Divergence;
}
// ---- end of the generated section ----

/* An error of the library. */
export class PowerInferError extends Error {
    readonly status: number;
}

export interface Released {
    text: string;
    n_bytes: number;
    n_total: number;
    stop: number;
    stop_text: number;
}

export interface GeneratedText extends Generated {
    text: string;
    tokens: number[];
}

/* The functions of the C headers, without checks. */
export const C: Record<string, (...args: any[]) => any>;

/* Something to close, in any order. */
declare class Native {
    protected constructor();
    close(): void;
}

export class Model extends Native {
    static open(file: string, options?: ModelOptions & WithSignal): Promise<Model>;
    static open_memory(data: Uint8Array, options?: ModelOptions & WithSignal): Promise<Model>;
    open_drafter(file?: string | null, layer?: number): Promise<Model>;
    get_info(): ModelInfo;
    tokenize(text: Text, flags?: number): Int32Array;
    token_text(token: number, special?: boolean): Uint8Array;
    detokenize(tokens: Numbers, special?: boolean): string;
    token_is_end(token: number): boolean;
    token(role: number): number;
    n_metadata(): number;
    metadata_key(index: number): string;
    metadata(key: string): string;
    pooling(): number;
    is_encoder(): boolean;
    embedding_width(pooling?: number): number;
    tokenize_pair(query: Text, document: Text): Int32Array;
}

export class Grammar extends Native {
    static create(model: Model, gbnf: Text, options?: GrammarOptions): Promise<Grammar>;
    static from_schema(model: Model, schema: string | object): Promise<Grammar>;
    free(): void;
    retain(): Grammar;
    memory(): number;
    widened(): string[];
    match(text: Text): { begins: boolean; complete: boolean };
}

export class ChatTemplate extends Native {
    static create(model: Model, options?: ChatTemplateOptions): Promise<ChatTemplate>;
    free(): void;
    source(tools?: boolean): string;
    render(request: string | ChatRequest, now?: Date | null): string;
}

export class Sampler extends Native {
    static create(model: Model, options?: SamplerOptions): Promise<Sampler>;
    destroy(): void;
    accept(token: number): void;
    sample(logits: Numbers): number;
    seed(): Integer;
    grammar_progress(): { progress: number; why: PowerInferError | null };
    grammar_restart(): void;
    clone(): Promise<Sampler>;
    copy(source: Sampler): void;
}

export class Generation extends Native {
    static create(model: Model, sampler: Sampler,
                  options?: Omit<GenerationOptions, 'sampler'>): Promise<Generation>;
    free(): void;
    sample(logits: Numbers): Sampled;
    accept(sampled: Sampled): Released;
    end(stop: number): Released;
}

export class Cluster extends Native {
    static open(options?: Omit<ClusterOptions, 'lost' | 'give_up'>): Promise<Cluster>;
    fail(): void;
    rank(): number;
    size(): number;
    receive(folder?: string | null, options?: ModelOptions): Promise<Model | null>;
    work(model: Model, options?: ContextOptions): Promise<void>;
}

export class Context extends Native {
    static create(model: Model, options?: ContextOptions): Promise<Context>;
    readonly model: Model;
    destroy(): void;
    forward(inputs: Input[]): Promise<void>;
    forward_begin(inputs: Input[]): Promise<void>;
    forward_end(): Promise<void>;
    passes(): number;
    ranks(): number;
    get_ranks(): Promise<Rank[]>;
    logits(row?: number): Float32Array;
    logits_rows(): number;
    hidden(row?: number): Float32Array;
    hidden_rows(): number;
    cancel(): void;
    generate(session: Session, options?: GenerateOptions & WithSignal): Promise<GeneratedText>;
    stream(session: Session,
           options?: GenerateOptions & WithSignal): AsyncGenerator<string, GeneratedText, void>;
    embed(texts: (string | Numbers)[], pooling?: number): Promise<Float32Array[]>;
    get_counters(): Counters;
    kernels(): string;
    mode(): string;
    loss(): number;
    predicts_head(): { predicts: boolean; loss: number };
    attn_blocks(): number;
    threads(): number;
    batch(): number;
    get_placement(): Placement;
    get_device(device: number): DevicePlacement;
    get_layer(layer: number): LayerPlacement;
    watch(n_bins: number): void;
    watched(): number;
    get_activity(layer: number): LayerActivity;
    get_memory(): Memory;
    measure_drive(n_bytes: number, seconds: number): Promise<number>;
    trace_start(n_ubatches: number): void;
    trace_write(file: string): Promise<TraceSummary[]>;
}

export class Session extends Native {
    static create(context: Context, n_ctx: number): Promise<Session>;
    destroy(): void;
    length(): number;
    capacity(): number;
    rewind(length: number): void;
    features(position: number): Float32Array | null;
    features_first(): number;
    rewind_point(length: number): number;
    remove(first: number, end?: number): void;
    copy(source: Session, length: number): void;
    save(file: string, tokens: Numbers): Promise<void>;
    load(file: string): Promise<Int32Array>;
    get_state(tokens: Numbers): Promise<Uint8Array>;
    set_state(data: Uint8Array): Promise<Int32Array>;
    state_id(): Integer;
    range_bytes(n_tokens: number): number;
    recurrent_bytes(): number;
    get_range(first: number, n_tokens: number): Uint8Array;
    get_recurrent(length: number): Uint8Array;
    put_ranges(first: number, ranges: SessionRange[], tokens: Numbers,
               recurrent?: Uint8Array | null): void;
}

export class Speculator extends Native {
    static create(model: Model, options?: Omit<SpeculatorOptions, 'model'>,
                  draft_context?: Context | null): Promise<Speculator>;
    readonly draft_error: PowerInferError | null;
    destroy(): void;
    begin(text: number, tokens: Numbers, sampler: Sampler): Promise<void>;
    forget(text: number): void;
    accept(text: number, token: number): boolean;
    draft(drafts: Draft[], n_others?: number): Promise<Int32Array[]>;
    measured(n_tokens: number, seconds: number): void;
    counts(text: number): DraftCounts;
}

export function version(): string;
export function status_name(status: number): string;
export function status_text(status: number): string;
export function pooling_name(pooling: number): string;
export function quantize_type_name(name: string): string | null;
export function template_name(index: number): string | null;
export function mapped_file(address: bigint): string | null;
export function normalize(vector: Float32Array, norm?: number): Float32Array;
export function devices(folder?: string | null, machine?: string | null): Promise<Device[]>;
export function convert(directory: string, out: string,
                        options?: ConvertOptions & WithSignal): Promise<void>;
export function quantize(file: string, out: string | null,
                         options?: QuantizeOptions & WithSignal): Promise<QuantizeResult>;
export function imatrix(model: string, text: string, out: string,
                        options?: ImatrixOptions & WithSignal): Promise<void>;
export function prepare(file: string, out: string,
                        options?: PrepareOptions & WithSignal): Promise<PrepareResult>;
export function prepare_undo(file: string, out: string,
                             options?: PrepareOptions & WithSignal): Promise<void>;
export function tune(file: string, out: string,
                     options?: TuneOptions & WithSignal): Promise<TuneResult>;
export function synth(out: string, options?: SynthOptions & WithSignal): Promise<void>;
export function inspect(file: string, options?: InspectOptions): Promise<string>;
export function place(file: string | null, options?: PlaceOptions): Promise<string>;
export function template(request: string | ChatRequest, options?: TemplateOptions): Promise<string>;
export function bench(model: Model, options?: BenchOptions & WithSignal): Promise<BenchReport>;
export function perplexity(model: Model, text: string | null,
                           options?: PerplexityOptions & WithSignal): Promise<PerplexityReport>;
