/* Tests of bindings/node: test_node.mjs TOP PROGRAM FOLDER, with $POWERINFER_LIBRARY. */
import test from 'node:test';
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { execFileSync } from 'node:child_process';
import koffi from 'koffi';
import * as pi from 'powerinfer';
import { structs } from './node_modules/powerinfer/abi.js';
import * as constants from './node_modules/powerinfer/constants.js';

const [top, program, folder] = process.argv.slice(2);
const file = path.join(top, 'models', 'novella-7m.q8_0.powerinfer.gguf');
const prompt = 'The old lighthouse keeper';
const cpu = { device: pi.PI_DEVICE_CPU, n_threads: 1 };

const model = await pi.Model.open(file);
const context = await pi.Context.create(model, cpu);
const greedy = () => pi.Sampler.create(model, { temp: 0 });

async function generate(options = {}, session = null) {
    const own = session ?? await pi.Session.create(context, 512);
    try {
        return await context.generate(own, { prompt, max_tokens: 24, sampler: await greedy(),
                                             ...options });
    } finally {
        if (!session) own.close();
    }
}
const failsWith = (status, message) => (error) =>
    error instanceof pi.PowerInferError && error.status === status && message.test(error.message);

test('structs and constants are the compiler\'s', (t) => {
    const text = fs.readFileSync(path.join(folder, 'layout.json'), 'utf8');
    if (!text) return t.skip('no python3');
    const layout = JSON.parse(text);
    assert.equal(koffi.sizeof('tm'), layout.structs['struct tm'].size);
    delete layout.structs['struct tm'];
    assert.deepEqual(Object.keys(structs).sort(), Object.keys(layout.structs).sort());
    for (const [name, { size, fields }] of Object.entries(layout.structs)) {
        const { type } = structs[name];
        assert.equal(koffi.sizeof(type), size, name);
        assert.deepEqual(Object.keys(structs[name].fields), Object.keys(fields), name);
        for (const [field, [offset, bytes]] of Object.entries(fields)) {
            assert.equal(koffi.offsetof(type, field), offset, `${name}.${field}`);
            assert.equal(koffi.sizeof(type.members[field].type), bytes, `${name}.${field}`);
        }
    }
    for (const [name, value] of Object.entries(layout.constants)) {
        // a number of JSON beyond 2^53 has been rounded
        assert.equal(typeof constants[name] === 'bigint' ? Number(constants[name]) : constants[name],
                     value, name);
    }
    assert.equal(pi.PI_VRAM_FREE, 2n ** 64n - 1n);
    assert.equal(Object.keys(constants).length, Object.keys(layout.constants).length);
});

test('types of the module are its exports', () => {
    const types = fs.readFileSync('node_modules/powerinfer/index.d.ts', 'utf8');
    const declared = [...types.matchAll(/^export (?:const|class|function) (\w+)/gm)].map((m) => m[1]);
    assert.deepEqual(declared.sort(), Object.keys(pi).sort());
    for (const [, name, body] of types.matchAll(/^export class (\w+) extends Native \{(.*?)^\}/gms)) {
        const methods = [...body.matchAll(/^ {4}(?!static|readonly)(\w+)\(/gm)].map((m) => m[1]);
        assert.deepEqual(methods.filter((m) => typeof pi[name].prototype[m] !== 'function'), [], name);
        const made = [...body.matchAll(/^ {4}static (\w+)\(/gm)].map((m) => m[1]);
        assert.deepEqual(made.filter((m) => typeof pi[name][m] !== 'function'), [], name);
    }
});

test('the text is that of run', async () => {
    const expected = execFileSync(program, ['run', '-q', '-m', file, '-p', prompt, '-n', '24',
                                            '--temp', '0', '--device', 'cpu']).toString().trim();
    assert.ok(expected.length > 40);
    const result = await generate();
    assert.equal(result.text.trim(), expected);
    assert.equal(result.stop, pi.PI_STOP_LENGTH);
    assert.equal(result.tokens.length, 24);

    const session = await pi.Session.create(context, 512);
    const pieces = [];
    for await (const piece of context.stream(session, { prompt, max_tokens: 24,
                                                        sampler: await greedy() })) pieces.push(piece);
    assert.ok(pieces.length > 10);
    assert.equal(pieces.join('').trim(), expected);

    // The loops of the headers: forward and sample, and Generation.
    session.rewind(0);
    let tokens = model.tokenize(prompt);
    const generation = await pi.Generation.create(model, await greedy(),
                                                  { max_tokens: 24, visible: [1, 2] });
    const sampler = await greedy();
    for (const token of tokens) sampler.accept(token);
    let [text, released] = ['', null];
    do {
        await context.forward([{ session, tokens, logits: pi.PI_LOGITS_LAST }]);
        const logits = context.logits();
        const sampled = generation.sample(logits);
        assert.equal(sampler.sample([...logits]), sampled.token);
        released = generation.accept(sampled);
        text += released.text;
        tokens = [sampled.token];
    } while (released.stop === pi.PI_STOP_NONE);
    assert.equal(text.trim(), expected);
    generation.free();
    session.close();
});

test('the event loop runs while a model computes', async () => {
    let ticks = 0;
    const timer = setInterval(() => { ticks++; }, 1);
    const calls = [generate({ max_tokens: 200 }), generate({ max_tokens: 200 })];
    await Promise.all(calls);
    clearInterval(timer);
    assert.ok(ticks > 3, `${ticks} ticks`);
    assert.equal((await calls[0]).text, (await calls[1]).text); // one after the other
});

test('options', async () => {
    const first = await generate({ stops: ['house'], keep_stop: true });
    assert.deepEqual([first.stop, first.text], [pi.PI_STOP_TEXT, ' of the house']);
    const last = first.tokens.at(-1);
    const sampler = await pi.Sampler.create(model, {
        temp: 0, logit_bias: [{ token: last, bias: -Infinity }], dry_breakers: ['\n', '.'],
        samplers: [pi.PI_SAMPLER_TOP_K, pi.PI_SAMPLER_TEMPERATURE],
    });
    assert.ok(!(await generate({ sampler })).tokens.includes(last));
    const tokens = model.tokenize(prompt);
    assert.deepEqual((await generate({ prompt: null, tokens, max_tokens: 3 })).tokens,
                     first.tokens.slice(0, 3));
    await assert.rejects(pi.Sampler.create(model, { warmth: 1 }), /pi_sampler_options has no field/);
    const changed = await pi.Model.open(file, {
        overrides: [{ key: 'llama.context_length', type: pi.PI_VALUE_INT, integer: 512 }],
    });
    assert.equal(changed.get_info().n_ctx_train, 512);
    changed.close();
});

test('tokens and metadata', () => {
    const text = 'naïve \u0000 日本 <s>';
    assert.equal(model.detokenize(model.tokenize(text, 0)), text);
    assert.deepEqual([...model.tokenize('<s>', pi.PI_TOKENIZE_SPECIAL)], [model.token(pi.PI_TOKEN_BOS)]);
    assert.equal(model.token_text(1, true).toString(), '<s>');
    assert.ok(model.token_is_end(model.get_info().token_eos));
    const keys = Array.from({ length: model.n_metadata() }, (_, i) => model.metadata_key(i));
    assert.ok(keys.includes('general.architecture'));
    assert.equal(model.metadata('general.architecture'), 'llama');
    assert.throws(() => model.metadata('nothing'), failsWith(pi.PI_ERR_NOT_FOUND, /nothing/));
});

test('a model in memory', async () => {
    const other = await pi.Model.open_memory(fs.readFileSync(file));
    const [c, sampler] = [await pi.Context.create(other, cpu), await pi.Sampler.create(other, { temp: 0 })];
    const session = await pi.Session.create(c, 64);
    assert.equal((await c.generate(session, { prompt, max_tokens: 3, sampler })).text, ' of the house');
    for (const object of [other, c, session, sampler]) object.close();
});

test('chat templates', async () => {
    const request = { messages: [{ role: 'user', content: 'Hi' }], add_generation_prompt: true };
    const expected = '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n';
    assert.equal((await pi.ChatTemplate.create(model, { name: 'chatml' })).render(request), expected);
    assert.equal(await pi.template(request, { name: 'chatml' }), expected);
    const dated = await pi.ChatTemplate.create(model, { source: '{{ strftime_now("%Y-%m-%d %a %j") }}' });
    const day = new Date(2024, 1, 29, 23, 30);
    assert.equal(dated.render(request, day), '2024-02-29 Thu 060');
    assert.equal(day.getHours(), 23);
    await assert.rejects(pi.ChatTemplate.create(model, { source: '{% if %}' }),
                         failsWith(pi.PI_ERR_FORMAT, /./));
});

test('grammars', async () => {
    const grammar = await pi.Grammar.from_schema(model, {
        type: 'object', properties: { a: { type: 'boolean' } }, required: ['a'],
        additionalProperties: false,
    });
    assert.deepEqual(grammar.match('{"a": t'), { begins: true, complete: false });
    assert.deepEqual(grammar.match('{"a": true}'), { begins: true, complete: true });
    const sampler = await pi.Sampler.create(model, { grammar, seed: 1 });
    const second = grammar.retain();
    grammar.free();
    const { text } = await generate({ sampler, max_tokens: 100 });
    assert.equal(typeof JSON.parse(text).a, 'boolean');
    assert.deepEqual(sampler.grammar_progress(), { progress: pi.PI_GRAMMAR_COMPLETE, why: null });
    assert.ok(second.memory() > 0);
    const lazy = await pi.Grammar.create(model, 'root ::= "x" data\n', {
        trigger_words: ['x'],
        schemas: [{ rule: 'data', schema: '{"uniqueItems": true}', widen: true, name: 'f' }],
    });
    assert.match(lazy.widened()[0], /uniqueItems/);
    assert.equal(lazy.widened().length, 1);
});

test('saving and loading', async () => {
    const tokens = model.tokenize(prompt);
    const session = await pi.Session.create(context, 64);
    const expected = (await generate({ max_tokens: 8 }, session)).tokens;
    session.rewind(tokens.length);
    const saved = path.join(folder, 'saved.session');
    await session.save(saved, tokens);
    const other = await pi.Session.create(context, 64);
    assert.deepEqual(await other.load(saved), tokens);
    const state = await session.get_state(tokens);
    assert.ok(state.equals(fs.readFileSync(saved)));
    other.rewind(0);
    assert.deepEqual(await other.set_state(state), tokens);
    other.rewind(tokens.length - 1);
    const got = await generate({ prompt: null, tokens, max_tokens: 8 }, other);
    assert.deepEqual([got.tokens, got.n_cached], [expected, tokens.length - 1]);
    await assert.rejects(other.set_state(state.subarray(1)), failsWith(pi.PI_ERR_FORMAT, /./));

    other.copy(session, 5);
    other.remove(1, 3);
    assert.deepEqual([other.length(), other.capacity(), other.rewind_point(2)], [3, 64, 2]);
    const data = session.get_range(0, 4);
    other.put_ranges(0, [{ data, n_tokens: 4 }], tokens.slice(0, 4));
    assert.ok(other.get_range(0, 4).equals(data));
    assert.equal(other.state_id(), session.state_id());
    assert.throws(() => other.put_ranges(0, [{ data: data.subarray(1), n_tokens: 4 }],
                                         tokens.slice(0, 4)), RangeError);
    assert.throws(() => other.rewind(5), failsWith(pi.PI_ERR_RANGE, /./));
});

test('embeddings and reports', async () => {
    const tokens = model.tokenize(prompt);
    const [vector] = await context.embed([prompt, 'x'], pi.PI_POOLING_MEAN);
    const each = await context.embed([tokens], pi.PI_POOLING_NONE);
    assert.deepEqual([vector.length, each.length], [model.get_info().n_embd, tokens.length]);
    const mean = vector.map((_, i) => each.reduce((sum, v) => sum + v[i], 0) / each.length);
    const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
    assert.ok(Math.abs(dot(vector, mean) / dot(mean, mean) - 1) < 0.02);
    assert.ok(Math.abs(dot(pi.normalize(vector), vector) - 1) < 1e-4);

    context.watch(4);
    context.trace_start(1);
    await generate({ max_tokens: 4 });
    assert.ok(context.watched() >= 3);
    assert.equal(context.get_activity(0).bins.length, 4);
    assert.deepEqual((await context.trace_write(path.join(folder, 'trace.json'))).map((s) => s.n_tokens),
                     [tokens.length]);
    assert.ok(context.get_counters().tokens >= 10);
    assert.equal(context.get_placement().device, 'cpu');
    assert.throws(() => context.get_layer(99), RangeError);
    assert.throws(() => context.logits(99), RangeError);
    assert.equal((await pi.devices()).at(-1).backend, 'sim');
    assert.equal(pi.mapped_file(0n), null);
});

test('speculation', async () => {
    const text = 'the house of the house of the house of';
    const plain = await generate({ prompt: text });
    const own = await pi.Context.create(model, { ...cpu, n_logits: 64 });
    for (const drafter of [{ ngrams: true }, {}]) {
        const speculator = await pi.Speculator.create(model, drafter, drafter.ngrams ? null : context);
        const session = await pi.Session.create(own, 512);
        const result = await own.generate(session, { prompt: text, max_tokens: 24, speculator,
                                                     sampler: await greedy() });
        assert.deepEqual(result.tokens, plain.tokens);
    }
    own.close();
    const [speculator, sampler] = [
        await pi.Speculator.create(model, { ngrams: true, n_ctx: 64, n_min: 2 }), await greedy()];
    await speculator.begin(0, [9, 5, 6, 7, 5, 6, 7, 5, 6, 7, 5, 6], sampler);
    sampler.close(); // the speculator needs it
    assert.deepEqual([...(await speculator.draft([{ text: 0, room: 16 }]))[0]].slice(0, 2), [7, 5]);
    assert.equal(speculator.accept(0, 7), true);
    assert.equal(speculator.counts(0).accepted, 1);
});

test('passes in two calls', async () => {
    const own = await pi.Context.create(model, cpu);
    const [first, second] = [await pi.Session.create(own, 64), await pi.Session.create(own, 64)];
    const inputs = (session) => [{ session, tokens: model.tokenize(prompt),
                                   logits: pi.PI_LOGITS_LAST }];
    await own.forward(inputs(first));
    const expected = own.logits();
    assert.deepEqual([own.passes(), own.ranks()], [1, 1]);
    await own.forward_begin(inputs(second));
    await assert.rejects(own.forward_begin(inputs(first)),
                         failsWith(pi.PI_ERR_LIMIT, /too many passes/));
    second.close(); // the pass needs it
    global.gc();
    await own.forward_end();
    assert.deepEqual(own.logits(), expected);
    await assert.rejects(own.forward_end(), failsWith(pi.PI_ERR_ARG, /no forward pass/));
    await assert.rejects(own.get_ranks(), failsWith(pi.PI_ERR_ARG, /no cluster/));
    await own.forward_begin(inputs(first)); // closed before its end
    own.close();
});

test('a head that drafts', async (t) => {
    await assert.rejects(model.open_drafter(), failsWith(pi.PI_ERR_NOT_FOUND, /./));
    const head_file = path.join(folder, 'head.gguf');
    try {
        execFileSync('python3', [path.join(top, 'tests', 'bindings', 'make_head.py'), head_file]);
    } catch (error) {
        if (error.code === 'ENOENT') return t.skip('no python3');
        throw error;
    }
    const plain = await generate();
    const head = await model.open_drafter(head_file);
    const own = await pi.Context.create(model, { ...cpu, drafter: head, n_logits: 64 });
    const session = await pi.Session.create(own, 512);
    assert.equal(session.features_first(), 0);
    const speculator = await pi.Speculator.create(model, {}, await pi.Context.create(head, cpu));
    const result = await own.generate(session, { prompt, max_tokens: 24, sampler: await greedy(),
                                                 speculator });
    assert.deepEqual(result.tokens, plain.tokens);
    assert.ok(result.n_drafted > 0);
    const features = session.features(session.length() - 1);
    assert.equal(features.length, head.get_info().n_embd);
    assert.ok(features.some((x) => x !== 0));
    assert.equal(session.features(session.length()), null);
    own.close();
});

test('clusters', async (t) => {
    await assert.rejects(pi.Cluster.open({ lost: () => {} }), TypeError);
    const mpi = path.join(path.dirname(process.env.POWERINFER_LIBRARY), 'libpowerinfer_mpi.so');
    const ranks = (n, how = '') => {
        const args = ['cluster.mjs', file, String(n), how];
        const env = { ...process.env, OMPI_ALLOW_RUN_AS_ROOT: '1',
                      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1' };
        const options = { env, encoding: 'utf8', timeout: 100000, stdio: ['ignore', 'pipe', 'pipe'] };
        return n === 1 ? execFileSync('node', args, options)
            : execFileSync('mpirun', ['--oversubscribe', '-n', String(n), 'node', ...args], options);
    };
    if (!fs.existsSync(mpi)) {
        assert.throws(() => ranks(1), /MPI/);
        return;
    }
    const own = await pi.Context.create(model, cpu);
    const session = await pi.Session.create(own, 64);
    await own.forward([{ session, tokens: [1, 2, 3], logits: pi.PI_LOGITS_LAST }]);
    const expected = own.logits().slice(0, 8).join(' ');
    const n_layers = own.get_placement().n_layers;
    assert.equal(ranks(1), `${expected}\n0-${n_layers}\n`);
    try {
        for (const how of ['', 'send']) {
            assert.equal(ranks(2, how), `${expected}\n${expected}\n0-${n_layers / 2} ` +
                                        `${n_layers / 2}-${n_layers}\n`);
        }
    } catch (error) {
        if (error.code !== 'ENOENT') throw error;
        t.diagnostic('no mpirun: one rank only');
    }
    for (const how of ['fail', 'abort']) {
        assert.throws(() => execFileSync('node', ['cluster.mjs', file, how], { stdio: 'pipe' }),
                      (error) => error.status === 1 && error.stdout.length === 0);
    }
    own.close();
});

test('tools', async () => {
    const seen = [];
    const out = path.join(folder, 'small.gguf');
    const result = await pi.quantize(file, out, { type: 'q4_0', allow_requantize: true,
                                                  tensor: (t) => { seen.push(t); } });
    assert.equal(seen.length, result.n_tensors);
    assert.ok(result.bytes_out < result.bytes_in && seen.some((t) => t.from === 'q8_0'));
    assert.equal(JSON.parse(await pi.inspect(out, { json: true })).architecture, 'llama');
    assert.match(await pi.place(file, { profile: 'rtx-4090-ddr5' }), /novella/);
    const text = fs.readFileSync(path.join(top, 'models', 'calibration.txt'), 'utf8').slice(0, 8000);
    const report = await pi.perplexity(model, text, { n_ctx: 256, n_windows: 2, context: cpu });
    assert.deepEqual([report.n_windows, report.tokens], [2, 510]);
    const bench = await pi.bench(model, { prompts: [8], gens: [2], repetitions: 1, context: cpu });
    assert.deepEqual(bench.results.map((r) => r.test), ['pp8', 'tg2']);
    assert.equal(pi.quantize_type_name('q4_k_m'), 'Q4_K_M');
    assert.equal(pi.quantize_type_name('nothing'), null);
});

test('errors', async () => {
    await assert.rejects(pi.Model.open('/nowhere/model.gguf'),
                         failsWith(pi.PI_ERR_IO, /\/nowhere\/model.gguf/));
    const session = await pi.Session.create(context, 64);
    await assert.rejects(context.forward([{ session, tokens: [1e9] }]),
                         failsWith(pi.PI_ERR_RANGE, /./));
    const sampler = await greedy();
    assert.throws(() => sampler.sample([0]), RangeError);
    assert.throws(() => new pi.Sampler(model), TypeError);
    const broken = () => { throw new TypeError('mine'); };
    await assert.rejects(generate({ piece: broken }), /mine/);
    await assert.rejects(generate({ progress: broken }), /mine/);
    await assert.rejects(pi.Model.open(file, { no_mmap: true, progress: broken }), /mine/);
    await assert.rejects(pi.Model.open(file, { no_mmap: true, progress: () => false }),
                         failsWith(pi.PI_ERR_CANCELLED, /./));
    assert.equal((await generate()).n_tokens, 24);
});

test('stopping', async () => {
    const stopped = await generate({ max_tokens: -1, piece: (token, text) => !text.includes('house') });
    assert.deepEqual([stopped.stop, stopped.text], [pi.PI_STOP_CANCELLED, ' of the house']);

    const abort = new AbortController();
    let n = 0;
    await assert.rejects(generate({ max_tokens: -1, signal: abort.signal,
                                    piece: () => { if (++n === 3) abort.abort(); } }),
                         { name: 'AbortError' });
    assert.equal(n, 3);
    await assert.rejects(generate({ signal: AbortSignal.abort() }), { name: 'AbortError' });

    const session = await pi.Session.create(context, 512);
    let [running, inside] = [null, 0];
    const sampler = await greedy();
    await new Promise((resolve) => {
        running = context.generate(session, { prompt, sampler, piece() {
            inside = session.length(); // a callback may use the session
            resolve();
        } });
    });
    assert.throws(() => session.length(), /the Session is busy/);
    context.cancel();
    assert.equal((await running).stop, pi.PI_STOP_CANCELLED);
    assert.ok(inside >= model.tokenize(prompt).length);
    session.rewind(0);
    for await (const text of context.stream(session, { prompt, sampler: await greedy() })) {
        assert.equal(text, ' of');
        break;
    }
    assert.ok(session.length() < session.capacity());
});

test('closing in any order', async () => {
    const own = await pi.Model.open(file);
    const c = await pi.Context.create(own, cpu);
    const session = await pi.Session.create(c, 64);
    own.close();
    c.close();
    assert.equal(session.length(), 0); // its context is still there
    await assert.rejects(c.generate(session, { prompt }), /the Context is closed/);
    session.destroy();
    session.destroy();
    assert.throws(() => session.length(), /the Session is closed/);

    const other = await pi.Context.create(model, cpu);
    const last = await pi.Session.create(other, 64);
    const result = await other.generate(last, { prompt, max_tokens: 5, piece() {
        other.close();
        last.close();
    } });
    assert.equal(result.tokens.length, 5);
});

test('a program that closes nothing ends', () => {
    const text = `import * as pi from 'powerinfer';
        const model = await pi.Model.open(${JSON.stringify(file)});
        const context = await pi.Context.create(model, { device: pi.PI_DEVICE_CPU, n_threads: 4 });
        const session = await pi.Session.create(context, 64);
        await context.generate(session, { prompt: 'a', max_tokens: 20 });`;
    for (let i = 0; i < 5; i++) execFileSync(process.execPath, ['--input-type=module', '-e', text]);
});

test('memory of 200 rounds', { skip: !fs.existsSync('/proc/self/statm') }, async () => {
    let before = 0;
    for (let i = 0; i < 300; i++) {
        const own = await pi.Model.open(file);
        const c = await pi.Context.create(own, { ...cpu, n_batch: 32 });
        const session = await pi.Session.create(c, 64);
        const grammar = await pi.Grammar.create(own, 'root ::= [a-z ]+');
        const sampler = await pi.Sampler.create(own, { grammar });
        await c.generate(session, { prompt: 'a', max_tokens: 2, sampler });
        const template = await pi.ChatTemplate.create(own, { name: 'chatml' });
        template.render({ messages: [] });
        await session.get_state(own.tokenize('a'));
        for (const object of [own, c, session, grammar, sampler, template]) object.close();
        if (i === 100) { // the allocator has what it keeps
            globalThis.gc();
            before = process.memoryUsage();
        }
    }
    globalThis.gc();
    const after = process.memoryUsage();
    const grown = (after.rss - after.heapTotal) - (before.rss - before.heapTotal);
    assert.ok(grown < 16 << 20, `${grown} bytes`);
});
