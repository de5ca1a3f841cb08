// Runs programs written for OpenAI's, Anthropic's and Ollama's APIs against a running server.
//     node clients.mjs http://127.0.0.1:PORT
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { Ollama } from 'ollama';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const address = process.argv[2];
const openai = new OpenAI({ baseURL: `${address}/v1`, apiKey: 'none', maxRetries: 0 });
const ollama = new Ollama({ host: address });
const anthropic = new Anthropic({ baseURL: address, apiKey: 'none', maxRetries: 0 });
const messages = [{ role: 'user', content: 'Hello there' }];
const parameters = {
    type: 'object',
    properties: { city: { enum: ['Rome', 'Oslo'] } },
    required: ['city'],
    additionalProperties: false,
};
const tools = [{ type: 'function', function: { name: 'weather', parameters } }];
const greedy = { model: 'any', temperature: 0, messages };

// Zod's constraints of strings and numbers. Free texts get a maximum length, so that they end.
const helpers = {
    email: z.email().max(40), html5Email: z.email({ pattern: z.regexes.html5Email }).max(40),
    rfc5322Email: z.email({ pattern: z.regexes.rfc5322Email }).max(40),
    unicodeEmail: z.email({ pattern: z.regexes.unicodeEmail }).max(40),
    url: z.url(), httpUrl: z.httpUrl(), uuid: z.uuid(), uuidv4: z.uuidv4(), uuidv6: z.uuidv6(),
    uuidv7: z.uuidv7(), guid: z.guid(), emoji: z.emoji().max(4), base64: z.base64().max(16),
    base64url: z.base64url().max(16), nanoid: z.nanoid(), cuid: z.cuid().max(20),
    cuid2: z.cuid2().max(20), ulid: z.ulid(), xid: z.xid(), ksuid: z.ksuid(), ipv4: z.ipv4(),
    ipv6: z.ipv6(), cidrv4: z.cidrv4(), cidrv6: z.cidrv6(), mac: z.mac(), e164: z.e164(),
    jwt: z.jwt(), hostname: z.hostname().max(20), hex: z.hex().max(20), sha256: z.hash('sha256'),
    md5: z.hash('md5', { enc: 'base64' }), date: z.iso.date(), time: z.iso.time().max(15),
    datetime: z.iso.datetime().max(30), offset: z.iso.datetime({ offset: true }).max(40),
    local: z.iso.datetime({ local: true, precision: 3 }), duration: z.iso.duration().max(20),
    lowercase: z.string().lowercase().max(20), uppercase: z.string().uppercase().max(20),
    startsWith: z.string().startsWith('a.b').max(20), endsWith: z.string().endsWith('c!').max(20),
    includes: z.string().includes('mid').max(20),
    together: z.string().startsWith('a').endsWith('z').includes('q').min(5).max(12),
    regex: z.string().regex(/^[a-z0-9-]+$/).min(3).max(20), length: z.string().length(5),
    nonempty: z.string().nonempty().max(20), format: z.stringFormat('cool', /^co{2,9}l$/),
    template: z.templateLiteral(['v', z.enum(['a', 'b']), '.', z.iso.date()]),
    multipleOf: z.number().multipleOf(5), quarter: z.number().multipleOf(0.25).min(-3).max(7),
    int: z.int(), int32: z.int32(), float32: z.float32(), positive: z.number().positive(),
    record: z.record(z.enum(['a', 'b']), z.int32()),
    union: z.discriminatedUnion('k', [z.object({ k: z.literal('a'), x: z.int32() }),
        z.object({ k: z.literal('b') })]),
    tuple: z.tuple([z.boolean(), z.null()]), nullable: z.string().max(9).nullable(),
};

const tests = {
    async 'zod: every helper'() {
        const sampled = { model: 'any', temperature: 1, seed: 5 };
        let turn = 0;
        // OpenAI's helpers refuse some schemas; the server accepts them without the helpers.
        const formats = (schema) => {
            try {
                return [zodResponseFormat(schema, 'x'), zodTextFormat(schema, 'x')];
            } catch {
                const plain = { name: 'x', strict: true, schema: z.toJSONSchema(schema) };
                return [{ type: 'json_schema', json_schema: plain },
                    { type: 'json_schema', ...plain }];
            }
        };
        const ask = async (name, type) => {
            const schema = z.object({ v: type });
            const [forChat, forText] = formats(schema);
            const chat = await openai.chat.completions.create({
                ...sampled, messages, max_completion_tokens: 900,
                response_format: forChat,
            });
            assert.equal(chat.choices[0].finish_reason, 'stop', name);
            schema.parse(JSON.parse(chat.choices[0].message.content));
            if (turn++ % 8) return;
            const response = await openai.responses.create({
                ...sampled, input: 'Hello', max_output_tokens: 900,
                text: { format: forText },
            });
            assert.equal(response.status, 'completed', name);
            schema.parse(JSON.parse(response.output_text));
        };
        for (const [name, type] of Object.entries(helpers)) {
            try {
                await ask(name, type);
            } catch (e) {
                throw new Error(`${name}: ${JSON.stringify(z.toJSONSchema(type))}`, { cause: e });
            }
        }
    },
    async 'anthropic: structured output'() {
        const schema = z.object({ city: z.enum(['Rome', 'Oslo']), sunny: z.boolean() });
        const request = { model: 'any', max_tokens: 200, messages };
        const message = await anthropic.messages.parse({
            ...request, output_config: { format: zodOutputFormat(schema) },
        });
        schema.parse(message.parsed_output);
        const older = await anthropic.beta.messages.create({
            ...request, output_format: { type: 'json_schema', schema: parameters },
        });
        assert.ok(['Rome', 'Oslo'].includes(JSON.parse(older.content[0].text).city));
        await assert.rejects(
            anthropic.messages.create({ ...request, output_config: { format: { type: 'x' } } }),
            /output_config.format/);
    },
    async 'anthropic: tool runner'() {
        const seen = [];
        const weather = betaZodTool({
            name: 'weather', description: 'The weather',
            inputSchema: z.object({ city: z.enum(['Rome', 'Oslo']) }),
            run: async ({ city }) => { seen.push(city); return `It rains in ${city}.`; },
        });
        const runner = anthropic.beta.messages.toolRunner({
            model: 'any', max_tokens: 200, temperature: 1, messages, tools: [weather],
            tool_choice: { type: 'any', disable_parallel_tool_use: true }, max_iterations: 3,
        });
        const lengths = [];
        for await (const message of runner) {
            assert.equal(message.stop_reason, 'tool_use');
            lengths.push(message.usage.input_tokens + message.usage.cache_read_input_tokens);
        }
        assert.equal(lengths.length, 3);
        // Each turn contains the whole conversation before it.
        assert.ok(lengths[0] < lengths[1] && lengths[1] < lengths[2], String(lengths));
        assert.ok(seen.length >= 2 && seen.every((city) => ['Rome', 'Oslo'].includes(city)));
    },
    async 'openai: allowed tools'() {
        const other = { type: 'function', function: { name: 'other', parameters } };
        const { choices } = await openai.chat.completions.create({
            ...greedy, temperature: 1, tools: [...tools, other], max_completion_tokens: 100,
            tool_choice: {
                type: 'allowed_tools',
                allowed_tools: {
                    mode: 'required', tools: [{ type: 'function', function: { name: 'other' } }],
                },
            },
        });
        for (const call of choices[0].message.tool_calls) assert.equal(call.function.name, 'other');
        const response = await openai.responses.create({
            model: 'any', input: 'Hello', max_output_tokens: 300, parallel_tool_calls: false,
            tools: [{ type: 'function', name: 'a', parameters, strict: true },
                { type: 'function', name: 'b', parameters, strict: true }],
            tool_choice: {
                type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'b' }],
            },
        });
        for (const item of response.output) assert.equal(item.name, 'b');
    },
    async 'a context that is too small'() {
        const long = 'word '.repeat(9000);
        const input = [{ role: 'user', content: long }];
        await assert.rejects(
            openai.chat.completions.create({ model: 'any', messages: input }),
            (e) => e.status === 400 && e.code === 'context_length_exceeded' &&
                e.type === 'invalid_request_error');
        await assert.rejects(openai.responses.create({ model: 'any', input: long }),
            (e) => e.code === 'context_length_exceeded');
        await assert.rejects(
            anthropic.messages.create({ model: 'any', max_tokens: 9, messages: input }),
            (e) => e.status === 400 && /prompt is too long: \d+ tokens > \d+ maximum/.test(e.message));
        const native = await fetch(`${address}/completion`, {
            method: 'POST', body: JSON.stringify({ prompt: long }),
        });
        const { error } = await native.json();
        assert.equal(native.status, 400);
        assert.equal(error.type, 'exceed_context_size_error');
        assert.ok(error.n_prompt_tokens > error.n_ctx && error.n_ctx > 0);
    },
    async 'openai: echo with logprobs'() {
        const { choices: [choice] } = await openai.completions.create({
            model: 'any', prompt: 'Once upon a time', max_tokens: 0, echo: true, logprobs: 1,
        });
        const { tokens, token_logprobs: values, text_offset: at } = choice.logprobs;
        assert.equal(choice.text, 'Once upon a time');
        assert.equal(values[0], null);
        assert.ok(values.slice(1).every((x) => x < 0));
        assert.equal(tokens.length, at.length);
    },
    async 'openai: chat and stream'() {
        const whole = await openai.chat.completions.create({ ...greedy, max_completion_tokens: 12 });
        assert.equal(whole.choices[0].finish_reason, 'length');
        assert.equal(whole.usage.completion_tokens, 12);
        const stream = await openai.chat.completions.create({
            ...greedy, max_completion_tokens: 12, stream: true,
            stream_options: { include_usage: true },
        });
        let text = '', usage = null;
        for await (const chunk of stream) {
            text += chunk.choices[0]?.delta?.content ?? '';
            usage = chunk.usage ?? usage;
        }
        assert.equal(text, whole.choices[0].message.content);
        assert.equal(usage.completion_tokens, 12);
    },
    async 'openai: tools'() {
        const stream = openai.chat.completions.stream({
            ...greedy, temperature: 1, seed: 3, tools, tool_choice: 'required',
            parallel_tool_calls: false,
        });
        const { choices } = await stream.finalChatCompletion();
        assert.equal(choices[0].finish_reason, 'tool_calls');
        const { name, arguments: text } = choices[0].message.tool_calls[0].function;
        assert.equal(name, 'weather');
        assert.ok(['Rome', 'Oslo'].includes(JSON.parse(text).city));
    },
    async 'openai: JSON schema'() {
        const { choices } = await openai.chat.completions.create({
            ...greedy, temperature: 1, seed: 3,
            response_format: { type: 'json_schema', json_schema: { name: 'x', schema: parameters } },
        });
        assert.deepEqual(Object.keys(JSON.parse(choices[0].message.content)), ['city']);
    },
    async 'openai: abort'() {
        const stream = await openai.chat.completions.create({ ...greedy, stream: true });
        for await (const chunk of stream) {
            assert.equal(chunk.object, 'chat.completion.chunk');
            break; // closes the connection
        }
    },
    async 'openai: errors'() {
        await assert.rejects(
            openai.chat.completions.create({ ...greedy, temperature: 'hot' }),
            (e) => e instanceof OpenAI.BadRequestError && /temperature/.test(e.message));
        await assert.rejects(openai.get('/nothing'), OpenAI.NotFoundError);
    },
    async 'openai: completions, models, responses'() {
        const { choices } = await openai.completions.create({
            model: 'any', prompt: 'Once', max_tokens: 4, n: 2, temperature: 0,
        });
        assert.equal(choices.length, 2);
        assert.equal((await openai.models.list()).data.length, 1);
        const response = await openai.responses.create({
            model: 'any', input: 'Hello there', temperature: 0, max_output_tokens: 12,
        });
        const stream = await openai.responses.create({
            model: 'any', input: 'Hello there', temperature: 0, max_output_tokens: 12, stream: true,
        });
        let text = '', last = null;
        for await (const event of stream) {
            if (event.type === 'response.output_text.delta') text += event.delta;
            last = event;
        }
        assert.equal(text, response.output_text);
        assert.equal(last.type, 'response.incomplete');
    },
    async 'openai: embeddings'() {
        // The client requests base64 and decodes it by default.
        const input = ['Hello there', 'It was a dark night'];
        const coded = await openai.embeddings.create({ model: 'any', input });
        const plain = await openai.embeddings.create({
            model: 'any', input, encoding_format: 'float',
        });
        assert.equal(coded.data.length, 2);
        assert.equal(coded.usage.prompt_tokens, plain.usage.prompt_tokens);
        for (const [i, { embedding, index }] of coded.data.entries()) {
            assert.equal(index, i);
            assert.ok(Math.abs(Math.hypot(...embedding) - 1) < 1e-5);
            embedding.forEach((x, k) =>
                assert.ok(Math.abs(x - plain.data[i].embedding[k]) < 1e-5));
        }
        const short = await openai.embeddings.create({ model: 'any', input, dimensions: 3 });
        assert.equal(short.data[1].embedding.length, 3);
        assert.ok(Math.abs(Math.hypot(...short.data[1].embedding) - 1) < 1e-5);
        await assert.rejects(
            openai.embeddings.create({ model: 'any', input, dimensions: 100000 }),
            (e) => e instanceof OpenAI.BadRequestError && /dimensions/.test(e.message));
    },
    async 'anthropic: message and stream'() {
        const request = { model: 'any', max_tokens: 12, temperature: 0, messages };
        const whole = await anthropic.messages.create(request);
        assert.equal(whole.stop_reason, 'max_tokens');
        const stream = anthropic.messages.stream(request);
        assert.equal(await stream.finalText(), whole.content[0].text);
        assert.equal((await stream.finalMessage()).usage.output_tokens, 12);
    },
    async 'anthropic: tools'() {
        const stream = anthropic.messages.stream({
            model: 'any', max_tokens: 200, messages,
            tools: [{ name: 'weather', input_schema: parameters }],
            tool_choice: { type: 'tool', name: 'weather' },
        });
        const message = await stream.finalMessage();
        assert.equal(message.stop_reason, 'tool_use');
        assert.ok(['Rome', 'Oslo'].includes(message.content[0].input.city));
    },
    async 'ollama: chat and stream'() {
        const request = { model: 'any', messages, options: { temperature: 0, num_predict: 12 } };
        const whole = await ollama.chat(request);
        assert.equal(whole.done_reason, 'length');
        assert.equal(whole.eval_count, 12);
        const openaiText = (await openai.chat.completions.create({ ...greedy, max_tokens: 12 }))
            .choices[0].message.content;
        assert.equal(whole.message.content, openaiText);
        let text = '', last;
        for await (const part of await ollama.chat({ ...request, stream: true })) {
            text += part.message.content;
            last = part;
        }
        assert.equal(text, openaiText);
        assert.equal(last.done, true);
    },
    async 'ollama: form and tools'() {
        const request = { model: 'any', messages, options: { temperature: 0, num_predict: 200 } };
        const formed = await ollama.chat({ ...request, format: parameters });
        assert.ok(['Rome', 'Oslo'].includes(JSON.parse(formed.message.content).city));
        const called = await ollama.chat({ ...request, tools, tool_choice: 'required' });
        const [call] = called.message.tool_calls;
        assert.equal(call.function.name, 'weather');
        assert.ok(['Rome', 'Oslo'].includes(call.function.arguments.city));
        const after = await ollama.chat({ ...request, tools, messages: [...messages,
            called.message, { role: 'tool', tool_name: 'weather', content: 'sunny' }],
            options: { temperature: 0, num_predict: 4 } });
        assert.equal(typeof after.message.content, 'string');
    },
    async 'ollama: generate, embed, abort'() {
        const options = { temperature: 0, num_predict: 8 };
        const raw = await ollama.generate({ model: 'any', prompt: 'Once', raw: true, options });
        const text = (await openai.completions.create({
            model: 'any', prompt: 'Once', temperature: 0, max_tokens: 8 })).choices[0].text;
        assert.equal(raw.response, text);
        const { embeddings } = await ollama.embed({ model: 'any', input: ['a', 'b'] });
        assert.equal(embeddings.length, 2);
        assert.ok(Math.abs(Math.hypot(...embeddings[1]) - 1) < 1e-4);
        const long = await ollama.generate({ model: 'any', prompt: 'Once', stream: true });
        let n = 0;
        await assert.rejects(async () => {
            for await (const part of long) if (part && ++n === 3) long.abort();
        }, { name: 'AbortError' });
    },
    async 'ollama: models and errors'() {
        const { models: [model] } = await ollama.list();
        assert.equal((await ollama.ps()).models[0].digest, model.digest);
        const shown = await ollama.show({ model: model.name });
        assert.ok(shown.capabilities.includes('completion'));
        assert.equal(shown.model_info['general.architecture'], model.details.family);
        assert.match((await ollama.version()).version, /^\d+\.\d+\.\d+$/);
        await assert.rejects(ollama.chat({ model: 'any', messages, think: [3] }), /think/);
    },
    async 'anthropic: errors'() {
        await assert.rejects(
            anthropic.messages.create({ model: 'any', max_tokens: -7, messages }),
            Anthropic.BadRequestError);
    },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
    try {
        await test();
        console.log(`ok      ${name}`);
    } catch (e) {
        failed++;
        console.log(`FAILED  ${name}: ${e.stack}`, e.cause ?? "");
    }
}
process.exit(failed ? 1 : 0);
