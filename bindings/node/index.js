/* Run large language models on ordinary machines: libpowerinfer for Node, through koffi.
 *
 * Names are those of the C headers (docs/embedding.md, include/*.h) without the prefix:
 * pi_session_rewind(session, ...) is session.rewind(...). `create` and `open` make objects, fields
 * of options structs are properties, with the defaults of the C library. C has all functions as they
 * are, without checks. index.d.ts has the types.
 *
 * Calls that compute or read files return a promise and run in a thread of libuv's pool; callbacks
 * run on the main thread meanwhile. A context and its sessions, and a sampler, do one call at a
 * time: asynchronous calls wait for their turn, synchronous ones throw while one runs, except in its
 * callbacks. Objects can be closed in any order: what another object or a running call needs stays
 * until it is closed as well.
 *
 * The library is the file $POWERINFER_LIBRARY, else one in lib/ next to this file, else the
 * system's. */
import koffi from 'koffi';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { structs, callbacks, functions } from './abi.js';
import * as constants from './constants.js';

export * from './constants.js';

const {
    PI_OK, PI_ERR_LIMIT, PI_VERSION_MAJOR, PI_VERSION_MINOR, PI_TOKENIZE_BOS, PI_POOLING_MODEL,
    PI_POOLING_NONE, PI_GRAMMAR_FAILED, PI_NORM_EUCLID,
} = constants;

function findLibrary() {
    if (process.env.POWERINFER_LIBRARY) return process.env.POWERINFER_LIBRARY;
    const version = `${PI_VERSION_MAJOR}.${PI_VERSION_MINOR}`;
    const names = [`libpowerinfer.so.${version}`, 'libpowerinfer.dylib', 'powerinfer.dll'];
    const folder = path.join(path.dirname(fileURLToPath(import.meta.url)), 'lib');
    const here = names.map((name) => path.join(folder, name)).find((file) => fs.existsSync(file));
    const system = { darwin: names[1], win32: names[2] }[process.platform] ?? names[0];
    return here ?? system;
}

function load() {
    // Stacks of the threads that call: the defaults of koffi are smaller than a thread's.
    try {
        koffi.config({ sync_stack_size: 4 << 20, async_stack_size: 4 << 20 });
    } catch {
        // another module has loaded a library before: its configuration counts
    }
    try {
        return koffi.load(findLibrary());
    } catch (error) {
        throw new Error(`libpowerinfer was not found: ${error.message}: install it, or name its ` +
                        'file in POWERINFER_LIBRARY');
    }
}

const library = load();

/* The functions of the C headers. */
export const C = {};
for (const [name, prototype] of Object.entries(functions)) C[name] = library.func(prototype);
if (!C.pi_version().startsWith(`${PI_VERSION_MAJOR}.${PI_VERSION_MINOR}.`)) {
    throw new Error(`libpowerinfer ${C.pi_version()} has other structs than this module for ` +
                    `version ${PI_VERSION_MAJOR}.${PI_VERSION_MINOR}: use files of one version`);
}

// ---- errors, objects and calls ------------------------------------------------------------------

/* An error of the library: `status`, and `message`, one line for the user. */
export class PowerInferError extends Error {
    constructor(status, message) {
        super(message);
        this.name = 'PowerInferError';
        this.status = status;
    }
}

function check(status, err) {
    if (status !== PI_OK) throw new PowerInferError(status, err.message);
}

/* Calls on a context, or a sampler, one at a time. */
class Lock {
    static count = 0;
    id = Lock.count++; // locks are taken in one order: no deadlock
    busy = false;
    inside = 0; // callbacks of the call in progress
    later = []; // objects to destroy after it
    last = Promise.resolve();

    async acquire() {
        const before = this.last;
        let next;
        this.last = new Promise((resolve) => { next = resolve; });
        await before;
        this.busy = true;
        return () => {
            this.busy = false;
            for (const action of this.later.splice(0)) action();
            next();
        };
    }

    get closed() {
        return this.busy && !this.inside;
    }
}

/* An object of the library. Its uses are the JavaScript object, other handles that need it, and
 * running calls; the last one destroys it. */
class Handle {
    uses = 1;

    constructor(pointer, destroy, parents, lock) {
        Object.assign(this, { pointer, destroy, lock, parents: parents.map((p) => p.use()) });
    }

    use() {
        if (this.uses === 0) throw new Error('the object is closed');
        this.uses++;
        return this;
    }

    release() {
        if (--this.uses > 0) return;
        if (this.lock?.closed) this.lock.later.push(() => this.end());
        else this.end();
    }

    end() {
        this.destroy(this.pointer);
        for (const parent of this.parents.splice(0)) parent.release();
        this.freed?.();
    }
}

const HANDLE = Symbol('handle');
const registry = new FinalizationRegistry((handle) => handle.release());

class Native {
    constructor(key) {
        if (key !== HANDLE) {
            throw new TypeError(`use ${this.constructor.name}.create or open, which are asynchronous`);
        }
    }

    /* Destroys the object as soon as no other object and no call needs it. */
    close() {
        const handle = this[HANDLE];
        this[HANDLE] = null;
        if (!handle) return;
        registry.unregister(this);
        handle.release();
    }
}
if (Symbol.dispose) {
    Native.prototype[Symbol.dispose] = function dispose() { this.close(); };
}

function adopt(object, handle) {
    object[HANDLE] = handle;
    registry.register(object, handle, object);
    return object;
}

function open(object) {
    if (object instanceof Handle) return object;
    if (!object[HANDLE]) throw new Error(`the ${object.constructor.name} is closed`);
    return object[HANDLE];
}

const native = (value) => (value instanceof Native ? open(value).pointer : value);

/* Calls a function on the main thread. */
function get(name, ...args) {
    for (const object of args) {
        if (object instanceof Native && open(object).lock?.closed) {
            throw new Error(`${name}: the ${object.constructor.name} is busy: await its call first`);
        }
    }
    return C[name](...args.map(native));
}

function getStruct(name, struct, ...args) {
    const out = {};
    get(name, ...args, out);
    return plain(struct, out);
}

/* Calls a function with a status on the main thread. */
function run(name, ...args) {
    const err = {};
    check(get(name, ...args, err), err);
}

/* Calls NAME(..., buffer, capacity, &n, err) until the buffer is large enough. */
function sized(make, capacity, name, ...args) {
    for (;;) {
        const [buffer, n, err] = [make(capacity), [0], {}];
        const status = get(name, ...args, buffer, capacity, n, err);
        if (n[0] <= capacity) {
            check(status, err);
            return buffer.subarray(0, n[0]);
        }
        if (status !== PI_ERR_LIMIT) check(status, err);
        capacity = n[0];
    }
}
const ints = (capacity) => new Int32Array(capacity);
const bytes = (capacity) => Buffer.alloc(capacity);
const text = (bytesOf) => Buffer.from(bytesOf).toString('utf8');

/* A result struct: texts, numbers, arrays of their actual length. */
function plain(struct, value) {
    if (struct === 'pi_error') {
        return value.status ? new PowerInferError(value.status, value.message) : null;
    }
    const out = {};
    for (const [name, type] of Object.entries(structs[struct].fields)) {
        let item = value[name];
        const [base, dims] = type.replace('const ', '').split(/(?=[[ ])/);
        if (dims?.startsWith('[') && base !== 'char') {
            item = Array.from(item);
            if (`n_${name}` in value) item.length = Math.min(item.length, value[`n_${name}`]);
            if (base in structs) item = item.map((i) => plain(base, i));
        } else if (base in structs && !type.includes('*')) {
            item = plain(base, item);
        }
        out[name] = item;
    }
    return out;
}

/* A struct of zeros. */
function zero(struct) {
    const out = {};
    for (const [name, type] of Object.entries(structs[struct].fields)) {
        const array = /^(\w+)\[(\d+)\]$/.exec(type);
        if (type.includes('*')) out[name] = null;
        else if (array && array[1] === 'char') out[name] = '';
        else if (array) {
            out[name] = Array.from({ length: Number(array[2]) },
                                   () => (array[1] in structs ? zero(array[1]) : 0));
        } else if (type in structs) out[name] = zero(type);
        else out[name] = type === 'bool' ? false : 0;
    }
    return out;
}

const defaults = (struct) =>
    (C[struct.replace(/_options$/, '_default_options')] ?? (() => zero(struct)))();

/* One asynchronous call: its arguments, the objects it uses, and the first exception of its
 * callbacks. */
class Call {
    registered = [];
    raised = null;
    locks = [];

    constructor(...objects) {
        this.objects = objects;
    }

    /* Calls the function in a thread of the pool. `read` reads what it returned before the next call
     * on the same objects. */
    async run(name, args, allow = [], read = null) {
        const handles = [];
        const frees = [];
        try {
            for (const object of this.objects) handles.push(open(object).use());
            const passed = args.map(native);
            this.locks = [...new Set(handles.map((h) => h.lock).filter(Boolean))]
                .sort((a, b) => a.id - b.id);
            for (const lock of this.locks) frees.push(await lock.acquire());
            this.signal?.throwIfAborted();
            const err = {};
            const status = await new Promise((resolve, reject) => {
                C[name].async(...passed, err, (error, result) => {
                    if (error) reject(error);
                    else resolve(result);
                });
            });
            read?.();
            if (this.raised) throw this.raised.exception;
            this.signal?.throwIfAborted();
            if (!allow.includes(status)) check(status, err);
            return status;
        } finally {
            for (const free of frees.reverse()) free();
            for (const handle of handles) handle.release();
            for (const callback of this.registered.splice(0)) koffi.unregister(callback);
        }
    }

    /* The object whose pointer the function stores in its last argument but the error. */
    async create(Type, name, destroy, parents, lock, ...args) {
        const out = [null];
        this.objects.push(...parents);
        const held = parents.map((p) => open(p).use()); // as long as the call is in progress
        try {
            await this.run(name, [...args, out]);
            return adopt(new Type(HANDLE), new Handle(out[0], C[destroy], held, lock));
        } catch (error) {
            if (out[0]) C[destroy](out[0]);
            throw error;
        } finally {
            for (const handle of held) handle.release();
        }
    }

    /* An options struct: its defaults, changed by `values`. */
    options(struct, values = {}) {
        this.signal = values.signal ?? this.signal;
        const out = this.struct(struct, values, defaults(struct));
        if ('progress' in out && !values.progress) {
            // so that an exception in any callback, or the signal, ends the call
            out.progress = this.callback('pi_progress', () => true);
        }
        return out;
    }

    struct(struct, values, out = zero(struct)) {
        const { fields, counts } = structs[struct];
        for (const [name, value] of Object.entries(values)) {
            if (name === 'signal' && !(name in fields)) continue;
            if (!(name in fields)) throw new TypeError(`${struct} has no field ${name}`);
            if (value === undefined || value === null) continue;
            out[name] = this.field(fields[name], value);
            const count = counts[name] ?? (fields[name].includes('[') ? `n_${name}` : null);
            if (count in fields && !(count in values)) out[count] = out[name].given ?? out[name].length;
        }
        return out;
    }

    field(type, value) {
        const base = type.replace('const ', '').split(/[ [*]/)[0];
        if (value instanceof Native) {
            this.objects.push(value);
            return open(value).pointer;
        }
        if (Array.isArray(value) && value[0] instanceof Native) {
            return value.map((item) => this.field(type, item));
        }
        if (typeof value === 'function') return this.callback(base, value);
        if (type === 'const char *') return text(value);
        if (base === 'char' && Array.isArray(value)) return value.map(text);
        if (type.includes('uint8_t *') || base === 'void') return Buffer.from(value);
        if (base === 'tm') return time(value);
        if (base in structs) {
            if (Array.isArray(value)) return value.map((item) => this.element(base, item));
            return this.struct(base, value, defaults(base));
        }
        if (type.includes('*') && base !== 'char') {
            return base === 'float' ? Float32Array.from(value) : Int32Array.from(value);
        }
        const array = /\[(\d+)\]$/.exec(type);
        if (array && base !== 'char') {
            if (value.length > Number(array[1])) throw new RangeError(`more than ${array[1]} values`);
            const all = Array.from({ length: Number(array[1]) }, (_, i) => value[i] ?? 0);
            return Object.defineProperty(all, 'given', { value: value.length });
        }
        return value;
    }

    element(struct, item) {
        if (struct === 'pi_stop_text' && typeof item === 'string') item = { text: item };
        return this.struct(struct, item);
    }

    callback(name, called) {
        const { type, prototype } = callbacks[name];
        const answers = prototype.startsWith('bool');
        const kinds = /\((.*)\)/.exec(prototype)[1].split(', ')
            .map((p) => /^const (pi_\w+) \*/.exec(p)?.[1]);
        const wrapped = (...args) => {
            if (this.raised || (answers && this.signal?.aborted)) return answers ? false : undefined;
            for (const lock of this.locks) lock.inside++;
            try {
                args = args.map((a, i) => (kinds[i]
                    ? plain(kinds[i], koffi.decode(a, structs[kinds[i]].type)) : a)).slice(1);
                if (name === 'pi_piece') args = [args[0], textAt(args[1], args[2])];
                const answer = called(...args);
                return answers ? answer !== false : undefined;
            } catch (exception) {
                this.raised = { exception };
                return answers ? false : undefined;
            } finally {
                for (const lock of this.locks) lock.inside--;
            }
        };
        const registered = koffi.register(wrapped, type);
        this.registered.push(registered);
        return registered;
    }

    /* What a function writes to the FILE that is its last argument but the error. */
    async written(name, args) {
        const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'powerinfer-'));
        const file = path.join(folder, 'out');
        try {
            const stream = libc.fopen(file, 'wb');
            if (!stream) throw new Error(`cannot write a temporary file: ${file}`);
            try {
                await this.run(name, [...args, stream]);
            } finally {
                libc.fclose(stream);
            }
            return fs.readFileSync(file, 'utf8');
        } finally {
            fs.rmSync(folder, { recursive: true, force: true });
        }
    }
}

const system = koffi.load(process.platform === 'win32' ? 'ucrtbase.dll' : null);
const libc = {
    fopen: system.func('void *fopen(const char *path, const char *mode)'),
    fclose: system.func('int fclose(void *stream)'),
};

const bytesAt = (pointer, n) => Buffer.from(n ? koffi.decode(pointer, 'uint8_t', n) : []);
const textAt = (pointer, n) => bytesAt(pointer, n).toString('utf8');
const floatsAt = (pointer, n) => Float32Array.from(koffi.decode(pointer, 'float', n));
const request = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));

function time(date) {
    const start = new Date(date.getFullYear(), 0, 1);
    return {
        tm_sec: date.getSeconds(), tm_min: date.getMinutes(), tm_hour: date.getHours(),
        tm_mday: date.getDate(), tm_mon: date.getMonth(), tm_year: date.getFullYear() - 1900,
        tm_wday: date.getDay(), tm_yday: Math.round((date.setHours(0, 0, 0, 0) - start) / 864e5),
        tm_isdst: -1, tm_gmtoff: 0, tm_zone: null,
    };
}

/* Memory for n structs that a function writes. */
async function structArray(struct, n, use) {
    const memory = koffi.alloc(structs[struct].type, Math.max(n, 1));
    try {
        const count = await use(memory);
        return Array.from({ length: count }, (_, i) =>
            plain(struct, koffi.decode(memory, i * koffi.sizeof(structs[struct].type),
                                       structs[struct].type)));
    } finally {
        koffi.free(memory);
    }
}

// ---- models -------------------------------------------------------------------------------------

/* An opened GGUF file. */
export class Model extends Native {
    static async open(file, options) {
        const call = new Call();
        const values = call.options('pi_model_options', options);
        return call.create(Model, 'pi_model_open', 'pi_model_close', [], null, file, values);
    }

    /* Opens the bytes of a file, which are copied. */
    static async open_memory(data, options) {
        const call = new Call();
        const values = call.options('pi_model_options', { ...options, no_mmap: true });
        return call.create(Model, 'pi_model_open_memory', 'pi_model_close', [], null,
                           Buffer.from(data.buffer, data.byteOffset, data.byteLength),
                           data.byteLength, values);
    }

    /* Opens a head that drafts for this model, of its own file or another one: one of its layers. */
    async open_drafter(file = null, layer = 0) {
        return new Call(this).create(Model, 'pi_model_open_drafter', 'pi_model_close', [this], null,
                                     this, file, layer);
    }

    get_info() {
        return getStruct('pi_model_get_info', 'pi_model_info', this);
    }

    /* flags: PI_TOKENIZE_... */
    tokenize(string, flags = PI_TOKENIZE_BOS) {
        const data = Buffer.from(string);
        return sized(ints, data.length + 16, 'pi_tokenize', this, data, data.length, flags);
    }

    /* The bytes of a token, which may be part of a character. */
    token_text(token, special = false) {
        return sized(bytes, 64, 'pi_token_text', this, token, special);
    }

    detokenize(tokens, special = false) {
        const ids = Int32Array.from(tokens);
        return text(sized(bytes, 8 * ids.length + 16, 'pi_detokenize', this, ids, ids.length,
                          special));
    }

    token_is_end(token) {
        return get('pi_token_is_end', this, token);
    }

    /* The token for a PI_TOKEN_... role; -1: none. */
    token(role) {
        return get('pi_model_token', this, role);
    }

    n_metadata() {
        return get('pi_model_n_metadata', this);
    }

    metadata_key(index) {
        return text(sized(bytes, 64, 'pi_model_metadata_key', this, index));
    }

    metadata(key) {
        return text(sized(bytes, 256, 'pi_model_metadata', this, key));
    }

    pooling() {
        return get('pi_model_pooling', this, [false]);
    }

    is_encoder() {
        return get('pi_model_is_encoder', this);
    }

    embedding_width(pooling = PI_POOLING_MODEL) {
        return get('pi_embedding_width', this, pooling);
    }

    tokenize_pair(query, document) {
        const [q, d] = [Buffer.from(query), Buffer.from(document)];
        return sized(ints, q.length + d.length + 16, 'pi_tokenize_pair', this, q, q.length, d,
                     d.length);
    }
}

/* A grammar for samplers of one model. */
export class Grammar extends Native {
    /* From GBNF. */
    static async create(model, gbnf, options = {}) {
        const call = new Call();
        const values = call.options('pi_grammar_options', options);
        const data = Buffer.from(gbnf);
        return call.create(Grammar, 'pi_grammar_create', 'pi_grammar_free', [model], null, model,
                           data, data.length, values);
    }

    /* From a JSON Schema, as text or object. */
    static async from_schema(model, schema) {
        const data = request(schema);
        return new Call().create(Grammar, 'pi_grammar_from_schema', 'pi_grammar_free', [model], null,
                                 model, data, data.length);
    }

    free() {
        this.close();
    }

    /* Another object for the same grammar. */
    retain() {
        const handle = open(this);
        return adopt(new Grammar(HANDLE), new Handle(C.pi_grammar_retain(handle.pointer),
                                                     C.pi_grammar_free, handle.parents, null));
    }

    memory() {
        return get('pi_grammar_memory', this);
    }

    /* Keywords of schemas that constrain nothing. */
    widened() {
        const lines = [];
        for (;;) {
            const line = get('pi_grammar_widened', this, lines.length);
            if (line === null) return lines;
            lines.push(line);
        }
    }

    match(string) {
        const data = Buffer.from(string);
        const [begins, complete] = [[false], [false]];
        run('pi_grammar_match', this, data, data.length, begins, complete);
        return { begins: begins[0], complete: complete[0] };
    }
}

/* The chat template of a model, or a given one. */
export class ChatTemplate extends Native {
    static async create(model, options = {}) {
        const call = new Call();
        const values = call.options('pi_chat_template_options', options);
        return call.create(ChatTemplate, 'pi_chat_template_create', 'pi_chat_template_free', [model],
                           null, model, values);
    }

    free() {
        this.close();
    }

    source(tools = false) {
        return get('pi_chat_template_source', this, tools);
    }

    /* The prompt for a request: { messages, add_generation_prompt, ... } or JSON. */
    render(value, now = null) {
        const data = request(value);
        const [out, n] = [[null], [0]];
        run('pi_chat_template_render', this, data, data.length, now && time(new Date(now)), out, n);
        try {
            return textAt(out[0], n[0]);
        } finally {
            C.pi_text_free(out[0]);
        }
    }
}

// ---- samplers -----------------------------------------------------------------------------------

/* Turns logits into tokens. */
export class Sampler extends Native {
    static async create(model, options = {}) {
        const call = new Call();
        const values = call.options('pi_sampler_options', options);
        const sampler = await call.create(Sampler, 'pi_sampler_create', 'pi_sampler_destroy',
                                          [model], new Lock(), model, values);
        sampler.n_vocab = model.get_info().n_vocab;
        return sampler;
    }

    destroy() {
        this.close();
    }

    accept(token) {
        get('pi_sampler_accept', this, token);
    }

    /* The next token for logits [n_vocab]; -1: the grammar allows none. */
    sample(logits) {
        return get('pi_sampler_sample', this, row(logits, this.n_vocab));
    }

    seed() {
        return get('pi_sampler_seed', this);
    }

    /* The state of the grammar, and the reason of PI_GRAMMAR_FAILED. */
    grammar_progress() {
        const why = {};
        const progress = get('pi_sampler_grammar_progress', this, why);
        return { progress, why: progress === PI_GRAMMAR_FAILED ? plain('pi_error', why) : null };
    }

    grammar_restart() {
        get('pi_sampler_grammar_restart', this);
    }

    /* A copy that samples the same tokens. */
    async clone() {
        const copy = await new Call(this).create(
            Sampler, 'pi_sampler_clone', 'pi_sampler_destroy', open(this).parents, new Lock(), this);
        copy.n_vocab = this.n_vocab;
        return copy;
    }

    /* Sets this sampler, a clone of `source`, to the state of `source`. */
    copy(source) {
        get('pi_sampler_copy', this, source);
    }
}

function row(logits, n_vocab) {
    if (logits.length !== n_vocab) {
        throw new RangeError(`${logits.length} logits: the vocabulary has ${n_vocab} tokens`);
    }
    return logits instanceof Float32Array ? logits : Float32Array.from(logits);
}

/* The text of one sequence, token by token, for a loop of the program. */
export class Generation extends Native {
    static async create(model, sampler, options = {}) {
        const call = new Call();
        const { visible, ...others } = options;
        const values = call.options('pi_generation_options', { max_tokens: -1, sampler, ...others });
        let memory = null; // outlives the generation
        if (visible?.length) {
            memory = koffi.alloc('int32_t', visible.length);
            koffi.encode(memory, 'int32_t', Int32Array.from(visible), visible.length);
            Object.assign(values, { visible: memory, n_visible: visible.length });
        }
        try {
            const generation = await call.create(
                Generation, 'pi_generation_create', 'pi_generation_free', [model, sampler],
                open(sampler).lock, model, values);
            generation.n_vocab = model.get_info().n_vocab;
            const freed = memory;
            memory = null;
            if (freed) open(generation).freed = () => koffi.free(freed);
            return generation;
        } finally {
            if (memory) koffi.free(memory);
        }
    }

    free() {
        this.close();
    }

    /* Samples the next token from logits [n_vocab]. */
    sample(logits) {
        const out = {};
        run('pi_generation_sample', this, row(logits, this.n_vocab), out);
        return plain('pi_sampled', out);
    }

    /* Appends a sampled token to the text and tells whether the text ends. */
    accept(sampled) {
        const out = {};
        run('pi_generation_accept', this, sampled, out);
        return released(out);
    }

    /* Ends the text and releases the bytes that were held back. */
    end(stop) {
        const out = {};
        get('pi_generation_end', this, stop, out);
        return released(out);
    }
}

const released = (out) => ({ ...out, text: textAt(out.text, out.n_bytes) });

// ---- contexts and sessions ----------------------------------------------------------------------

/* The processes (ranks) that an MPI launcher started, each with a range of the layers of a model
 * (docs/cluster-mpi.md). Once per process. Rank 0 creates contexts with the option `cluster`, the
 * others call work. */
export class Cluster extends Native {
    /* Joins the other ranks, on the main thread, since MPI ends on the thread on which it began. */
    static async open(options = {}) {
        if (options.lost || options.give_up) {
            throw new TypeError('lost and give_up are called on another thread: not supported');
        }
        const [out, values] = [[null], new Call().options('pi_cluster_options', options)];
        run('pi_cluster_open', values, out);
        return adopt(new Cluster(HANDLE), new Handle(out[0], C.pi_cluster_close, [], new Lock()));
    }

    /* Closing the cluster ends all processes: this rank cannot go on. */
    fail() {
        get('pi_cluster_fail', this);
    }

    rank() {
        return get('pi_cluster_rank', this);
    }

    /* The number of ranks. */
    size() {
        return get('pi_cluster_size', this);
    }

    /* On a rank above 0 without the model's file: opens the model with the metadata that rank 0
     * sends; work receives its layers, into memory or into a file in `folder`. null: rank 0 closed
     * the cluster before. */
    async receive(folder = null, options = {}) {
        const call = new Call(this);
        const [out, values] = [[null], call.options('pi_model_options', options)];
        await call.run('pi_cluster_receive', [this, folder, values, out]);
        if (!out[0]) return null;
        return adopt(new Model(HANDLE), new Handle(out[0], C.pi_model_close, [], null));
    }

    /* On a rank above 0: computes for the contexts of rank 0 until it closes the cluster. */
    async work(model, options = {}) {
        const call = new Call(this, model);
        const values = call.options('pi_context_options', options);
        await call.run('pi_cluster_work', [this, model, values]);
    }
}

/* Inputs in memory of C that stays valid until it is freed. */
function keptInputs(values) {
    const { type } = structs.pi_input;
    const memory = [koffi.alloc(type, Math.max(values.length, 1))];
    const copy = (kind, array) => {
        if (!array?.length) return null;
        const at = koffi.alloc(kind, array.length);
        memory.push(at);
        koffi.encode(at, kind, array, array.length);
        return at;
    };
    values.forEach((value, i) => koffi.encode(memory[0], i * koffi.sizeof(type), type, {
        ...value, tokens: copy('int32_t', value.tokens), features: copy('float', value.features),
    }));
    return { inputs: memory[0], memory, handles: [] };
}

function freePass(pass) {
    pass.memory.forEach((at) => koffi.free(at));
    pass.handles.forEach((handle) => handle.release());
}

/* Working memory and worker threads of a model. */
export class Context extends Native {
    static async create(model, options = {}) {
        const call = new Call();
        const values = call.options('pi_context_options', options);
        const { drafter, cluster } = options;
        const context = await call.create(
            Context, 'pi_context_create', 'pi_context_destroy',
            [model, drafter, cluster].filter(Boolean), cluster ? open(cluster).lock : new Lock(),
            model, values);
        context.model = model;
        context.drafter = drafter ?? null;
        context.under_way = []; // passes
        const info = model.get_info();
        return Object.assign(context, { n_vocab: info.n_vocab, n_embd: info.n_embd, n_bins: 0,
                                        n_traced: 0 });
    }

    destroy() {
        this.close();
    }

    /* Evaluates tokens: [{ session, tokens, logits: PI_LOGITS_LAST }]. */
    async forward(inputs) {
        const call = new Call(this);
        const values = inputs.map((input) => call.struct('pi_input', input));
        await call.run('pi_forward', [this, values, values.length]);
    }

    /* Begins a forward; up to passes() may be under way. Its sessions must not be used until
     * forward_end has ended it. */
    async forward_begin(inputs) {
        const call = new Call(this);
        const pass = keptInputs(inputs.map((input) => call.struct('pi_input', input)));
        try {
            await call.run('pi_forward_begin', [this, pass.inputs, inputs.length], [], () => {
                pass.handles = call.objects.slice(1).map((object) => open(object).use());
            });
        } catch (error) {
            freePass(pass);
            throw error;
        }
        this.under_way.push(pass);
    }

    /* Ends the oldest pass that was begun: logits and hidden are its rows. */
    async forward_end() {
        try {
            await new Call(this).run('pi_forward_end', [this]);
        } finally {
            if (this.under_way.length) freePass(this.under_way.shift());
        }
    }

    /* Destroys the context as soon as no session and no call needs it; passes under way end without
     * results. */
    close() {
        this.under_way?.splice(0).forEach(freePass);
        super.close();
    }

    /* The number of passes that may be under way. */
    passes() {
        return get('pi_context_passes', this);
    }

    /* The number of ranks; 1: without a cluster. */
    ranks() {
        return get('pi_context_ranks', this);
    }

    /* What the ranks of the cluster have and did; asks them. */
    get_ranks() {
        const n = this.ranks();
        return structArray('pi_rank', n, async (memory) => {
            await new Call(this).run('pi_context_get_ranks', [this, memory]);
            return n;
        });
    }

    /* A copy of a row of logits of the last forward, [n_vocab]. */
    logits(index = 0) {
        return this.rowOf('pi_logits', 'pi_logits_rows', index, this.n_vocab);
    }

    logits_rows() {
        return get('pi_logits_rows', this);
    }

    /* A copy of a row of hidden states of the last forward, [n_embd]. */
    hidden(index = 0) {
        return this.rowOf('pi_hidden', 'pi_hidden_rows', index, this.n_embd);
    }

    hidden_rows() {
        return get('pi_hidden_rows', this);
    }

    rowOf(name, rows, index, n) {
        const count = get(rows, this);
        if (!(index >= 0 && index < count)) throw new RangeError(`row ${index} of ${count}`);
        return floatsAt(get(name, this, index), n);
    }

    /* Ends the call in progress, or the next one, with PI_ERR_CANCELLED; generate ends with
     * PI_STOP_CANCELLED. */
    cancel() {
        C.pi_context_cancel(open(this).pointer);
    }

    /* Continues a prompt. An AbortSignal in options.signal rejects the promise with its reason. */
    async generate(session, options = {}) {
        const call = new Call(this, session);
        const pieces = [];
        const tokens = [];
        const piece = (token, string) => {
            if (token >= 0) tokens.push(token);
            pieces.push(string);
            return options.piece?.(token, string);
        };
        const values = call.options('pi_generate_options', { ...options, piece });
        const out = {};
        await call.run('pi_generate', [this, session, values, out]);
        return { ...plain('pi_generated', out), text: pieces.join(''), tokens };
    }

    /* Continues a prompt and yields its text in pieces; options as for generate. Leaving the loop
     * stops. */
    async *stream(session, options = {}) {
        const texts = [];
        let [stopped, wake, failure, result] = [false, null, null, null];
        const put = (string) => {
            if (string) texts.push(string);
            wake?.();
        };
        const generated = this.generate(session, {
            ...options,
            piece: (token, string) => {
                put(string);
                return !stopped && options.piece?.(token, string);
            },
            progress: (stage, fraction) => !stopped && options.progress?.(stage, fraction),
        }).then((value) => { result = value; }, (error) => { failure = { error }; }).then(() => put(''));
        try {
            for (;;) {
                while (texts.length > 0) yield texts.shift();
                if (failure) throw failure.error;
                if (result) return result;
                await new Promise((resolve) => { wake = resolve; });
            }
        } finally {
            stopped = true;
            await generated;
        }
    }

    /* The vectors of texts or token arrays: one per text, with PI_POOLING_NONE one per token of all
     * texts. Not normalized; see normalize. */
    async embed(texts, pooling = PI_POOLING_MODEL) {
        const call = new Call(this);
        const values = texts.map((t) => {
            const tokens = typeof t === 'string' ? this.model.tokenize(t) : Int32Array.from(t);
            return { tokens, n_tokens: tokens.length };
        });
        if (pooling === PI_POOLING_MODEL) pooling = this.model.pooling();
        const width = this.model.embedding_width(pooling);
        const n = pooling === PI_POOLING_NONE
            ? values.reduce((sum, v) => sum + v.n_tokens, 0) : values.length;
        const out = new Float32Array(n * width);
        await call.run('pi_embed', [this, values, values.length, pooling, out]);
        return Array.from({ length: n }, (_, i) => out.slice(i * width, (i + 1) * width));
    }

    get_counters() {
        return getStruct('pi_context_get_counters', 'pi_counters', this);
    }

    kernels() {
        return get('pi_context_kernels', this);
    }

    mode() {
        return get('pi_context_mode', this);
    }

    loss() {
        return get('pi_context_loss', this);
    }

    /* Whether only logits of predicted tokens are computed, and the loss of this. */
    predicts_head() {
        const loss = [0];
        return { predicts: get('pi_context_predicts_head', this, loss), loss: loss[0] };
    }

    attn_blocks() {
        return get('pi_context_attn_blocks', this);
    }

    threads() {
        return get('pi_context_threads', this);
    }

    batch() {
        return get('pi_context_batch', this);
    }

    get_placement() {
        return getStruct('pi_context_get_placement', 'pi_placement', this);
    }

    get_device(device) {
        inRange(device, this.get_placement().n_devices, 'GPU');
        return getStruct('pi_context_get_device', 'pi_device_placement', this, device);
    }

    get_layer(layer) {
        inRange(layer, this.get_placement().n_layers, 'layer');
        return getStruct('pi_context_get_layer', 'pi_layer_placement', this, layer);
    }

    /* Counts active neurons or experts from the next forward on, in n_bins bins; 0: stops. */
    watch(n_bins) {
        run('pi_context_watch', this, n_bins);
        this.n_bins = n_bins;
    }

    watched() {
        return get('pi_context_watched', this);
    }

    get_activity(layer) {
        inRange(layer, this.get_placement().n_layers, 'layer');
        const out = {};
        get('pi_context_get_activity', this, layer, out);
        const bins = out.bins ? Array.from(koffi.decode(out.bins, 'uint32_t', this.n_bins)) : [];
        return { ...out, bins };
    }

    get_memory() {
        return getStruct('pi_context_get_memory', 'pi_memory', this);
    }

    /* Bytes per second of the drive for reads of n_bytes, over about `seconds`. */
    async measure_drive(n_bytes, seconds) {
        const rate = [0];
        await new Call(this).run('pi_context_measure_drive', [this, n_bytes, seconds, rate]);
        return rate[0];
    }

    trace_start(n_ubatches) {
        run('pi_trace_start', this, n_ubatches);
        this.n_traced = n_ubatches;
    }

    /* Writes the recording as Chrome trace events; resolves to a summary of each ubatch. */
    trace_write(file) {
        return structArray('pi_trace_summary', this.n_traced, async (memory) => {
            const n = [0];
            await new Call(this).run('pi_trace_write', [this, file, memory, this.n_traced, n]);
            return Math.min(n[0], this.n_traced);
        });
    }
}

function inRange(index, count, what) {
    if (!(index >= 0 && index < count)) throw new RangeError(`there is no ${what} ${index}`);
}

/* One sequence of tokens: its KV cache and position. */
export class Session extends Native {
    static async create(context, n_ctx) {
        const session = await new Call().create(
            Session, 'pi_session_create', 'pi_session_destroy', [context], open(context).lock,
            context, n_ctx);
        const owner = context.drafter ?? context.model;
        return Object.assign(session, { n_features: owner.get_info().n_embd });
    }

    /* What a head that drafts reads of a token; null: it is not kept. */
    features(position) {
        const row = get('pi_session_features', this, position);
        return row && floatsAt(row, this.n_features);
    }

    /* The first position from which on all features are kept. */
    features_first() {
        return get('pi_session_features_first', this);
    }

    destroy() {
        this.close();
    }

    length() {
        return get('pi_session_length', this);
    }

    capacity() {
        return get('pi_session_capacity', this);
    }

    rewind(length) {
        run('pi_session_rewind', this, length);
    }

    rewind_point(length) {
        return get('pi_session_rewind_point', this, length);
    }

    /* Removes tokens [first, end) and shifts the later ones down; -1: to the end. */
    remove(first, end = -1) {
        run('pi_session_remove', this, first, end);
    }

    /* Replaces the content with the first `length` tokens of `source`. */
    copy(source, length) {
        run('pi_session_copy', this, source, length);
    }

    async save(file, tokens) {
        const ids = Int32Array.from(tokens);
        await new Call(this).run('pi_session_save', [this, file, ids, ids.length]);
    }

    /* Replaces the content with a saved state; resolves to its tokens. */
    load(file) {
        return this.loaded('pi_session_load', [file]);
    }

    /* The bytes that save writes. */
    async get_state(tokens) {
        const ids = Int32Array.from(tokens);
        const n = [0];
        await new Call(this).run('pi_session_get_state', [this, ids, ids.length, null, 0, n],
                                 [PI_ERR_LIMIT]);
        const data = Buffer.alloc(n[0]);
        await new Call(this).run('pi_session_get_state', [this, ids, ids.length, data, n[0], n]);
        return data;
    }

    set_state(data) {
        return this.loaded('pi_session_set_state', [data, data.length]);
    }

    async loaded(name, args) {
        const [tokens, n] = [new Int32Array(this.capacity()), [0]];
        await new Call(this).run(name, [this, ...args, tokens, tokens.length, n]);
        return tokens.slice(0, n[0]);
    }

    state_id() {
        return get('pi_session_state_id', this);
    }

    range_bytes(n_tokens) {
        return get('pi_session_range_bytes', this, n_tokens);
    }

    recurrent_bytes() {
        return get('pi_session_recurrent_bytes', this);
    }

    /* Keys and values of tokens [first, first + n_tokens). */
    get_range(first, n_tokens) {
        const data = Buffer.alloc(n_tokens >= 0 ? this.range_bytes(n_tokens) : 0);
        run('pi_session_get_range', this, first, n_tokens, data);
        return data;
    }

    get_recurrent(length) {
        const data = Buffer.alloc(this.recurrent_bytes());
        run('pi_session_get_recurrent', this, length, data);
        return data;
    }

    /* Puts ranges, [{ data: get_range(...), n_tokens }], after the first `first` tokens. */
    put_ranges(first, ranges, tokens, recurrent = null) {
        if (ranges.reduce((sum, r) => sum + r.n_tokens, 0) !== tokens.length) {
            throw new RangeError('as many tokens as the ranges have are needed');
        }
        for (const r of ranges) {
            if (r.n_tokens < 0 || r.data.length !== this.range_bytes(r.n_tokens)) {
                throw new RangeError('the bytes of a range do not fit its n_tokens');
            }
        }
        if (recurrent && recurrent.length !== this.recurrent_bytes()) {
            throw new RangeError('the recurrent state has another size');
        }
        const values = ranges.map((r) => new Call().struct('pi_session_range', r));
        run('pi_session_put_ranges', this, first, values, values.length, Int32Array.from(tokens),
            recurrent);
    }
}

/* Drafts tokens for speculative decoding. */
export class Speculator extends Native {
    /* draft_context: of the model that drafts. */
    static async create(model, options = {}, draft_context = null) {
        const call = new Call();
        const drafter = draft_context && { draft_context, draft_model: draft_context.model };
        const given = { n_texts: 1, n_ctx: model.get_info().n_ctx_train, ...options, ...drafter };
        const values = call.options('pi_speculator_options', { ...given, model });
        const speculator = await call.create(
            Speculator, 'pi_speculator_create', 'pi_speculator_destroy',
            [model, ...(draft_context ? [draft_context] : []), ...(given.chain ?? [])],
            draft_context ? open(draft_context).lock : new Lock(), values);
        return Object.assign(speculator, { n_texts: given.n_texts, samplers: new Map(),
                                           draft_error: null });
    }

    destroy() {
        this.close();
    }

    /* Begins text number `index` with the tokens in its session. */
    async begin(index, tokens, sampler) {
        inRange(index, this.n_texts, 'text');
        const ids = Int32Array.from(tokens);
        const [handle, used] = [open(this), open(sampler).use()];
        const before = this.samplers.get(index);
        handle.parents.push(used); // outlives the drafts
        this.samplers.set(index, used);
        await new Call(this, sampler).run('pi_speculator_begin',
                                          [this, index, ids, ids.length, sampler]);
        if (before) handle.parents.splice(handle.parents.indexOf(before), 1)[0].release();
    }

    forget(index) {
        inRange(index, this.n_texts, 'text');
        get('pi_speculator_forget', this, index);
    }

    /* Appends a sampled token to the text. True: it is the next one of the draft. */
    accept(index, token) {
        inRange(index, this.n_texts, 'text');
        return get('pi_speculator_accept', this, index, token);
    }

    /* Drafts for texts, [{ text: 0, room: 16 }]; resolves to the tokens of each. A draft model that
     * fails stores its error in draft_error. */
    async draft(drafts, n_others = 0) {
        for (const d of drafts) inRange(d.text, this.n_texts, 'text');
        const call = new Call(this, ...this.samplers.values());
        const values = drafts.map((d) => call.struct('pi_draft', d));
        let tokens;
        try {
            await call.run('pi_speculator_draft', [this, values, values.length, n_others], [], () => {
                tokens = values.map((d) => Int32Array.from(
                    d.n ? koffi.decode(d.tokens, 'int32_t', d.n) : []));
            });
        } catch (error) {
            if (!(error instanceof PowerInferError)) throw error;
            this.draft_error = error;
        }
        return tokens;
    }

    measured(n_tokens, seconds) {
        get('pi_speculator_measured', this, n_tokens, seconds);
    }

    counts(index) {
        inRange(index, this.n_texts, 'text');
        return plain('pi_draft_counts', get('pi_speculator_counts', this, index));
    }
}

// ---- functions ----------------------------------------------------------------------------------

export const version = () => C.pi_version();
export const status_name = (status) => C.pi_status_name(status);
export const status_text = (status) => C.pi_status_text(status);
export const pooling_name = (pooling) => C.pi_pooling_name(pooling);
export const quantize_type_name = (name) => C.pi_quantize_type_name(name);
export const template_name = (index) => C.pi_template_name(index);
/* Path of the open model whose mapping contains an address. */
export const mapped_file = (address) => C.pi_mapped_file(address);

/* Divides a Float32Array by its norm, in place. Returns it. */
export function normalize(vector, norm = PI_NORM_EUCLID) {
    C.pi_normalize(vector, vector.length, norm);
    return vector;
}

/* Lists the GPUs of every backend. */
export async function devices(folder = null, machine = null) {
    for (let capacity = 16; ;) {
        const n = [0];
        const found = await structArray('pi_device', capacity, async (memory) => {
            await new Call().run('pi_devices', [folder, machine, memory, capacity, n],
                                 [PI_ERR_LIMIT, PI_OK]);
            return Math.min(n[0], capacity);
        });
        if (n[0] <= capacity) return found;
        [capacity] = n;
    }
}

/* FUNCTION(paths..., options, &result): the result struct. */
async function tool(name, args, struct, options, result = null) {
    const call = new Call(...args.filter((a) => a instanceof Native));
    const values = call.options(struct, options);
    const out = {};
    await call.run(name, result ? [...args, values, out] : [...args, values]);
    return result ? plain(result, out) : undefined;
}

export const convert = (directory, out, options = {}) =>
    tool('pi_convert', [directory, out], 'pi_convert_options', options);
export const quantize = (file, out, options = {}) =>
    tool('pi_quantize', [file, out], 'pi_quantize_options', options, 'pi_quantize_result');
export const imatrix = (model, file, out, options = {}) =>
    tool('pi_imatrix', [model, file, out], 'pi_imatrix_options', options);
export const prepare = (file, out, options = {}) =>
    tool('pi_prepare', [file, out], 'pi_prepare_options', options, 'pi_prepare_result');
export const prepare_undo = (file, out, options = {}) =>
    tool('pi_prepare_undo', [file, out], 'pi_prepare_options', options);
export const tune = (file, out, options = {}) =>
    tool('pi_tune', [file, out], 'pi_tune_options', options, 'pi_tune_result');
export const synth = (out, options = {}) => tool('pi_synth', [out], 'pi_synth_options', options);

/* A description of a GGUF file. */
export async function inspect(file, options = {}) {
    const call = new Call();
    return call.written('pi_inspect', [file, call.options('pi_inspect_options', options)]);
}

/* The placement of a model on a machine. */
export async function place(file, options = {}) {
    const call = new Call();
    return call.written('pi_place', [file, call.options('pi_place_options', options)]);
}

/* The prompt for a chat request. */
export async function template(value, options = {}) {
    const call = new Call();
    const data = request(value);
    return call.written('pi_template', [data, data.length,
                                        call.options('pi_template_options', options)]);
}

/* Times prefill and decode. */
export async function bench(model, options = {}) {
    const call = new Call(model);
    const values = call.options('pi_bench_options', options);
    const [report] = await structArray('pi_bench_report', 1, async (memory) => {
        await call.run('pi_bench', [model, values, memory]);
        return 1;
    });
    return report;
}

/* Perplexity of a text. */
export async function perplexity(model, string, options = {}) {
    const data = string === null ? null : Buffer.from(string);
    return tool('pi_perplexity', [model, data, data ? data.length : 0], 'pi_perplexity_options',
                options, 'pi_perplexity_report');
}
