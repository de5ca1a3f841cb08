/* What a program in TypeScript writes; the lines after @ts-expect-error must be errors. */
import * as pi from 'powerinfer';

const model: pi.Model = await pi.Model.open('model.gguf', {
    overrides: [{ key: 'llama.context_length', type: pi.PI_VALUE_INT, integer: 512n }],
    progress: (stage, fraction) => stage.length > 0 && fraction < 1,
});
const info: pi.ModelInfo = model.get_info();
const name: string | null = info.name;
const context = await pi.Context.create(model, {
    mode: pi.PI_MODE_EXACT, devices: [0], vram_budget: pi.PI_VRAM_FREE, overrides: ['x=CPU'],
});
const session = await pi.Session.create(context, 512);
const sampler = await pi.Sampler.create(model, {
    temp: 0, logit_bias: [{ token: 1, bias: -Infinity }], dry_breakers: ['\n'],
});
const abort = new AbortController();
const result: pi.GeneratedText = await context.generate(session, {
    prompt: `Once ${name}`, sampler, stops: [{ text: 'end' }], signal: abort.signal,
    piece: (token, text) => { abort.abort(text + token.toFixed()); },
});
for await (const piece of context.stream(session, { tokens: result.tokens })) piece.trim();
const vectors: Float32Array[] = await context.embed(['a', [1, 2]], pi.PI_POOLING_MEAN);
const activity: number[] = context.get_activity(0).bins;
const failures: pi.DeviceFailure[] = (await pi.devices())[0].failures;
const quantized = await pi.quantize('a', 'b', { type: 'q4_0', tensor: () => undefined });
const bytes: pi.Integer = quantized.bytes_out;
const error: pi.PowerInferError | null = result.draft_error;
const cluster: pi.Cluster = await pi.Cluster.open({ split: [3, 1] });
const hosts: (string | null)[] = (await (await pi.Context.create(model, { cluster })).get_ranks())
    .map((rank) => rank.host);
const head: pi.Model = await model.open_drafter('head.gguf');
console.log(hosts, head, session.features(0), context.passes());
console.log(vectors, activity, failures, bytes, error?.status);
model.close();

// @ts-expect-error: no such option
await pi.Sampler.create(model, { warmth: 1 });
// @ts-expect-error: a wrong type
await pi.Context.create(model, { n_batch: 'many' });
// @ts-expect-error: objects are made by create
new pi.Sampler(model);
// @ts-expect-error: of another class
await pi.Session.create(model, 512);
// @ts-expect-error: no such constant
console.log(pi.PI_MODE_FASTEST);
