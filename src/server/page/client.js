/* client.js: requests to the server and the events of its streams. */
const numbers = ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'max_tokens', 'seed'];
let server = null; /* reply of /props, or the name of a model that is not loaded yet; null: no contact */
let models = []; /* names, if the server has several models */

/* A model without a chat template continues texts. */
const completes = () => !!server && server.chat_template === '';
const contextSize = () => server?.default_generation_settings?.n_ctx ?? 0;

const headers = () => ({
    'Content-Type': 'application/json',
    ...(settings.key && { Authorization: `Bearer ${settings.key}` }),
});

async function failure(reply) {
    let message = `The server answered with status ${reply.status}.`;
    try {
        message = (await reply.json()).error.message;
        message = message[0].toUpperCase() + message.slice(1);
    } catch {
        /* the body is not JSON, so only the status is known */
    }
    if (reply.status === 401) message = 'The server asks for an API key: enter it in the settings.';
    if (reply.status === 503) message = `The server is busy: ${message}`;
    return Object.assign(new Error(message), {
        status: reply.status,
        retryAfter: Number(reply.headers.get('Retry-After')) || 2,
    });
}

let needsKey = false; /* the server refused the key, or requires one */
function askForKey() {
    needsKey = true;
    openSettings('set-key');
}

const unreachable = 'The server does not answer. Is it running?';
let connecting = 0;
async function connect() {
    clearTimeout(connecting);
    try {
        const list = await fetch('v1/models', { headers: headers() });
        if (!list.ok) throw await failure(list);
        const all = (await list.json()).data;
        models = all.length > 1 ? all.map((m) => m.id) : [];
        const chosen = all.find((m) => m.id === settings.model) ?? all.find((m) => m.status.value === 'loaded') ?? all[0];
        if (chosen.status.value === 'loaded') {
            const reply = await fetch(`props?model=${encodeURIComponent(chosen.id)}`, { headers: headers() });
            if (!reply.ok) throw await failure(reply);
            server = await reply.json();
        } else server = { model: chosen.id };
        if ($('notice').textContent === unreachable || needsKey) notice();
        needsKey = false;
        connecting = 0;
    } catch (e) {
        notice(e.status ? e.message : unreachable);
        if (e.status === 401) askForKey();
        connecting = e.status ? 0 : setTimeout(connect, 3000); /* retry until the server is back */
    }
    showServer();
}

/* Yields the events of a stream. Throws when the stream ends before its last event. */
async function* events(reply) {
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
        const { value, done } = await reader.read();
        if (done) throw new TypeError('the stream ended early');
        text += value;
        let end;
        while ((end = text.indexOf('\n\n')) >= 0) {
            const lines = text.slice(0, end).split('\n');
            text = text.slice(end + 2);
            const data = lines
                .filter((l) => l.startsWith('data: '))
                .map((l) => l.slice(6))
                .join('\n');
            const name = lines.find((l) => l.startsWith('event: '))?.slice(7) ?? '';
            if (data === '[DONE]') return;
            if (data) yield { name, data: JSON.parse(data) };
        }
    }
}

/* The text of a message for the model: files follow the text, each in a fence longer than any fence
 * in it. */
function contentOf({ content, files }) {
    const parts = content ? [content] : [];
    for (const f of files) {
        const longest = Math.max(2, ...(f.text.match(/`{3,}/g) ?? []).map((run) => run.length));
        const fence = '`'.repeat(longest + 1),
            type = /\.(\w{1,12})$/.exec(f.name)?.[1] ?? '';
        parts.push(`${f.name}:\n${fence}${type}\n${f.text.replace(/\n$/, '')}\n${fence}`);
    }
    return parts.join('\n\n');
}

/* Path and body of the request that continues these messages. */
function requestFor(messages) {
    const body = { model: server?.model, stream: true, stream_options: { include_usage: true }, timings_per_token: true };
    if (!$('neurons').hidden) body.neurons = true;
    for (const name of numbers) if (typeof settings[name] === 'number') body[name] = settings[name];
    if (completes()) return ['v1/completions', { ...body, prompt: messages.map(contentOf).join('') }];
    const list = messages.map((m) => ({
        role: m.role,
        content: contentOf(m),
        ...(m.reasoning && { reasoning_content: m.reasoning }),
    }));
    if (settings.system) list.unshift({ role: 'system', content: settings.system });
    if (!settings.thinks && canThink()) body.chat_template_kwargs = { enable_thinking: false };
    return ['v1/chat/completions', { ...body, messages: list }];
}
const canThink = () => !!server?.chat_template?.includes('enable_thinking');
