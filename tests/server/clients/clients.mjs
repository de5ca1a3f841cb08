// What programs written for OpenAI's and Anthropic's APIs do, against a running server.
//     node clients.mjs http://127.0.0.1:PORT
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';

const address = process.argv[2];
const openai = new OpenAI({ baseURL: `${address}/v1`, apiKey: 'none', maxRetries: 0 });
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

const tests = {
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
        // The client asks for base64 and decodes it, unless it is told otherwise.
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
        await assert.rejects(
            openai.embeddings.create({ model: 'any', input, dimensions: 3 }),
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
        console.log(`FAILED  ${name}: ${e.stack}`);
    }
}
process.exit(failed ? 1 : 0);
