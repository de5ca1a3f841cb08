/* The page: conversations, what is sent to the server, and what is shown of its answers. */
const $ = (id) => document.getElementById(id);
const make = (name, properties = {}, ...children) => {
    const e = Object.assign(document.createElement(name), properties);
    e.append(...children);
    return e;
};

/* ---- what the browser keeps ------------------------------------------------------------------ */

const store = {
    get(name, otherwise) {
        try {
            return JSON.parse(localStorage.getItem(`powerinfer.${name}`)) ?? otherwise;
        } catch {
            return otherwise;
        }
    },
    set(name, value) {
        try {
            localStorage.setItem(`powerinfer.${name}`, JSON.stringify(value));
        } catch {
            notice('The browser has no room left: export conversations and delete some.');
        }
    },
};

const numbers = ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'max_tokens', 'seed'];
let settings = { system: '', key: '', theme: 'auto', ...store.get('settings', {}) };
let conversations = readConversations(store.get('conversations', []));
let current = conversations[0] ?? null; /* null: a new one, which is kept once it has a message */
let running = null; /* {controller, message} of the answer that is coming */
let editing = -1;   /* message whose text is being changed */
let server = null;  /* what /props says */

/* Also of a file that someone imports: only what has the right shape is taken. */
function readConversations(from) {
    const text = (x, most) => (typeof x === 'string' ? x.slice(0, most) : '');
    return (Array.isArray(from) ? from : []).filter((c) => Array.isArray(c?.messages)).slice(0, 5000).map((c) => ({
        id: text(c.id, 64) || crypto.randomUUID?.() || String(Math.random()).slice(2),
        title: text(c.title, 200) || 'Conversation',
        messages: c.messages.filter((m) => m && ['user', 'assistant'].includes(m.role)).map((m) => ({
            role: m.role, content: text(m.content, 1e7), reasoning: text(m.reasoning, 1e7), figure: text(m.figure, 200), error: text(m.error, 2000),
        })),
    }));
}
const save = () => store.set('conversations', conversations);

function notice(text = '') {
    $('notice').textContent = text;
    $('notice').hidden = !text;
}

/* ---- the server ------------------------------------------------------------------------------ */

const headers = () => ({ 'Content-Type': 'application/json', ...(settings.key && { Authorization: `Bearer ${settings.key}` }) });

async function failure(reply) {
    let message = `status ${reply.status}`;
    try {
        message = (await reply.json()).error.message;
    } catch { /* no JSON: the status has to do */ }
    if (reply.status === 401) message = 'The server wants an API key: enter it in the settings.';
    if (reply.status === 503) message = `The server is busy: ${message}`;
    return Object.assign(new Error(message), { status: reply.status });
}

async function connect() {
    try {
        const reply = await fetch('props', { headers: headers() });
        if (!reply.ok) throw await failure(reply);
        server = await reply.json();
        notice();
    } catch (e) {
        server = null;
        notice(e.status ? e.message : 'The server does not answer.');
        if (e.status === 401) openSettings('set-key');
    }
    const params = server?.default_generation_settings.params ?? {};
    for (const name of numbers) if (name in params) $(`set-${name}`).placeholder = params[name];
    const name = (server?.model ?? 'PowerInfer').replace(/\.gguf$/, '');
    $('model').textContent = name;
    document.title = name;
    const completes = server && !server.chat_template;
    $('greeting').textContent = completes ? 'Begin a text, and the model goes on.' : 'What would you like to know?';
    $('about').textContent = completes
        ? 'This model has no chat template, so that it continues texts in place of answering.'
        : server ? `${server.architecture}, ${server.mode} mode, ${server.default_generation_settings.n_ctx} tokens of context` : '';
}

/* Events of a stream, as they come. */
async function* events(reply) {
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        text += value;
        let end;
        while ((end = text.indexOf('\n\n')) >= 0) {
            const lines = text.slice(0, end).split('\n');
            text = text.slice(end + 2);
            const data = lines.filter((l) => l.startsWith('data: ')).map((l) => l.slice(6)).join('\n');
            const name = lines.find((l) => l.startsWith('event: '))?.slice(7) ?? '';
            if (data && data !== '[DONE]') yield { name, data: JSON.parse(data) };
        }
    }
}

function request(messages) {
    const body = { stream: true, stream_options: { include_usage: true }, timings_per_token: true };
    if (!$('neurons').hidden) body.neurons = true;
    for (const name of numbers) if (typeof settings[name] === 'number') body[name] = settings[name];
    if (server && !server.chat_template)
        return ['v1/completions', { ...body, prompt: messages.map((m) => m.content).join('') }];
    const list = messages.map(({ role, content }) => ({ role, content }));
    if (settings.system) list.unshift({ role: 'system', content: settings.system });
    return ['v1/chat/completions', { ...body, messages: list }];
}

function take(message, { name, data }) {
    if (name === 'powerinfer') return picture.update(data);
    if (data.error) throw new Error(data.error.message);
    const choice = data.choices?.[0], t = data.timings;
    message.content += choice?.delta?.content ?? choice?.text ?? '';
    message.reasoning += choice?.delta?.reasoning_content ?? '';
    if (choice?.finish_reason === 'length') message.cut = true;
    if (t) {
        const rate = t.predicted_per_second;
        message.n = t.predicted_n;
        if (rate) message.rate = rate;
        picture.rate(rate);
        if (rate) $('rate').textContent = `${rate.toFixed(1)} tokens/s`;
        showUsed(t.prompt_n + t.cache_n + t.predicted_n);
    }
    return undefined;
}

function showUsed(n) {
    const all = server?.default_generation_settings.n_ctx;
    $('used').textContent = all ? `${n} of ${all} tokens of context` : '';
}

/* Asks for an answer to what the conversation ends with. */
async function answer() {
    const of = current;
    const message = { role: 'assistant', content: '', reasoning: '', figure: '', error: '' };
    const [path, body] = request(of.messages);
    const controller = new AbortController();
    of.messages.push(message);
    running = { controller, message };
    notice();
    showConversation(true);
    $('live').textContent = 'The answer is being written.';
    try {
        const reply = await fetch(path, { method: 'POST', headers: headers(), body: JSON.stringify(body), signal: controller.signal });
        if (!reply.ok) throw await failure(reply);
        for await (const event of events(reply)) {
            take(message, event);
            showMessageSoon();
        }
        $('live').textContent = 'The answer is complete.';
    } catch (e) {
        if (e.name === 'AbortError') $('live').textContent = 'Stopped.';
        else message.error = e.name === 'TypeError' ? 'The connection to the server was lost.' : e.message;
        if (e.status === 401) openSettings('set-key');
    }
    const parts = [];
    if (message.n) parts.push(`${message.n} tokens`);
    if (message.rate) parts.push(`${message.rate.toFixed(1)}/s`);
    if (controller.signal.aborted) parts.push('stopped');
    else if (message.cut) parts.push('cut off: no tokens left');
    message.figure = parts.join(' · ');
    running = null;
    save();
    if (current === of) showConversation(false);
}

/* ---- the conversation ------------------------------------------------------------------------ */

const scroll = $('scroll');
const isAtEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
const toEnd = () => { scroll.scrollTop = scroll.scrollHeight; };

function body(message, i) {
    const b = make('div', { className: 'body' });
    const completes = server && !server.chat_template;
    if (message.role === 'user' || completes) {
        b.textContent = message.content;
        if (completes) b.classList.add('plain');
    } else {
        b.append(...markdown(message.content));
    }
    if (running?.message === message) b.classList.add('waiting');
    b.dataset.index = i;
    return b;
}

const action = (label, name, i) => {
    const b = make('button', { type: 'button', className: 'text', textContent: label });
    b.dataset[name] = i;
    return b;
};

function editor(message, i) {
    const text = make('textarea', { value: message.content, ariaLabel: 'Edit the message' });
    return make('div', { className: 'editor' }, text,
        make('div', {}, action('Cancel', 'cancel', i), make('button', { type: 'button', className: 'primary', textContent: 'Send' })));
}

function messageItem(message, i) {
    const who = message.role === 'user' ? 'You' : 'Answer';
    const li = make('li', { className: `message ${message.role}` }, make('h2', { className: 'hidden', textContent: who }));
    if (editing === i) {
        li.append(editor(message, i));
        return li;
    }
    if (message.reasoning) {
        const details = make('details', { className: 'reasoning', open: running?.message === message && !message.content },
            make('summary', { textContent: 'Reasoning' }), make('div', { textContent: message.reasoning }));
        li.append(details);
    }
    li.append(body(message, i));
    if (message.error) li.append(make('p', { className: 'failed', textContent: message.error }));
    if (running?.message === message) return li;
    const row = make('div', { className: 'actions' }, action('Copy', 'copy', i));
    if (message.role === 'user') row.append(action('Edit', 'edit', i));
    else if (i === current.messages.length - 1) row.append(action('Regenerate', 'again', i));
    if (message.figure) row.append(make('span', { className: 'figure', textContent: message.figure }));
    li.append(row);
    return li;
}

function showConversation(follow) {
    const messages = current?.messages ?? [];
    const end = follow || isAtEnd();
    $('messages').replaceChildren(...messages.map(messageItem));
    $('empty').hidden = messages.length > 0;
    $('messages').hidden = messages.length === 0;
    $('stop').hidden = !running;
    $('send').hidden = !!running;
    showList();
    sizeInput();
    if (end) toEnd();
}

/* While an answer comes: its message only, some times a second. */
let soon = 0;
function showMessageSoon() {
    soon ||= setTimeout(() => {
        soon = 0;
        if (!running || current?.messages.at(-1) !== running.message) return;
        const end = isAtEnd(), i = current.messages.length - 1;
        $('messages').lastElementChild?.replaceWith(messageItem(running.message, i));
        if (end) toEnd();
    }, 40);
}

function showList() {
    $('list').replaceChildren(...conversations.map((c) => {
        const open = make('button', { type: 'button', className: 'open', textContent: c.title, title: c.title });
        const remove = make('button', { type: 'button', className: 'icon delete', ariaLabel: `Delete ${c.title}` });
        remove.append($('side-close').firstElementChild.cloneNode(true));
        open.dataset.open = remove.dataset.remove = c.id;
        if (c === current) open.setAttribute('aria-current', 'page');
        return make('li', { className: c === current ? 'current' : '' }, open, remove);
    }));
}

function choose(conversation) {
    running?.controller.abort();
    current = conversation;
    editing = -1;
    $('rate').textContent = $('used').textContent = '';
    showConversation(true);
}

function send(text) {
    if (!text.trim() || running) return;
    if (!current) {
        current = { id: crypto.randomUUID?.() ?? String(Math.random()).slice(2), title: text.trim().split('\n')[0].slice(0, 80), messages: [] };
    }
    conversations = [current, ...conversations.filter((c) => c !== current)];
    current.messages.push({ role: 'user', content: text, reasoning: '', figure: '', error: '' });
    save();
    answer();
}

/* ---- controls -------------------------------------------------------------------------------- */

const input = $('input');
function sizeInput() {
    input.style.height = 'auto';
    input.style.height = `${input.scrollHeight}px`;
    $('send').disabled = !input.value.trim();
}
function submit() {
    const text = input.value;
    if (!text.trim() || running) return;
    input.value = '';
    send(text);
}
input.addEventListener('input', sizeInput);
input.addEventListener('keydown', (e) => {
    if (e.key !== 'Enter' || e.shiftKey || e.isComposing || matchMedia('(pointer: coarse)').matches) return;
    e.preventDefault();
    submit();
});
$('form').addEventListener('submit', (e) => {
    e.preventDefault();
    submit();
});
const stop = () => running?.controller.abort();
$('stop').addEventListener('click', () => {
    stop();
    input.focus();
});
$('new').addEventListener('click', () => {
    choose(null);
    if (narrow()) showSide(false);
    input.focus();
});

async function copy(text, button) {
    try {
        await navigator.clipboard.writeText(text);
    } catch { /* not a secure address: the old way */
        const area = make('textarea', { value: text, className: 'hidden' });
        document.body.append(area);
        area.select();
        document.execCommand('copy');
        area.remove();
    }
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}

function finishEdit(item) {
    const text = item.querySelector('textarea').value;
    if (!text.trim()) return;
    current.messages.length = editing;
    editing = -1;
    send(text);
}
$('messages').addEventListener('click', (e) => {
    const button = e.target.closest('button');
    if (!button) return;
    const { copy: copied, edit, again, cancel } = button.dataset;
    if (copied === 'block') copy(button.closest('.block').querySelector('pre').textContent, button);
    else if (copied) copy(current.messages[copied].content, button);
    if (running) return;
    if (edit) {
        editing = Number(edit);
        showConversation(false);
        const area = $('messages').querySelector('.editor textarea');
        area.focus();
        area.setSelectionRange(area.value.length, area.value.length);
    } else if (cancel) {
        editing = -1;
        showConversation(false);
    } else if (again) {
        current.messages.length = Number(again);
        answer();
    } else if (button.closest('.editor')) {
        finishEdit(button.closest('.editor'));
    }
});
$('messages').addEventListener('keydown', (e) => {
    const box = e.target.closest('.editor');
    if (!box) return;
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        finishEdit(box);
    } else if (e.key === 'Escape') {
        e.stopPropagation();
        editing = -1;
        showConversation(false);
        input.focus();
    }
});
$('list').addEventListener('click', (e) => {
    const button = e.target.closest('button');
    if (!button) return;
    const { open, remove } = button.dataset;
    if (open) {
        choose(conversations.find((c) => c.id === open));
        if (narrow()) showSide(false);
    } else if (confirm('Delete this conversation?')) {
        const gone = conversations.find((c) => c.id === remove);
        conversations = conversations.filter((c) => c !== gone);
        save();
        if (current === gone) choose(null);
        else showList();
        input.focus();
    }
});

/* Panels. Where there is no room for both, one closes the other; on narrow screens the list lies over
 * the conversation. */
const narrow = () => matchMedia('(max-width: 767px)').matches;
const hasRoom = () => matchMedia('(min-width: 1100px)').matches;
function showSide(on) {
    document.body.classList.toggle('no-side', !on);
    $('side-open').setAttribute('aria-expanded', on);
    $('shade').hidden = !narrow() || !on;
    if (on && !hasRoom() && !$('neurons').hidden) showNeurons(false);
    if (hasRoom()) store.set('side', on);
}
function showNeurons(on) {
    const end = isAtEnd();
    $('neurons').hidden = !on;
    $('neurons-open').setAttribute('aria-expanded', on);
    if (on && !hasRoom()) showSide(false);
    if (on) picture.refresh();
    if (hasRoom()) store.set('neurons', on);
    if (end) toEnd();
}
$('side-open').addEventListener('click', () => showSide(document.body.classList.contains('no-side')));
$('side-close').addEventListener('click', () => {
    showSide(false);
    $('side-open').focus();
});
$('neurons-open').addEventListener('click', () => showNeurons($('neurons').hidden));
$('neurons-close').addEventListener('click', () => {
    showNeurons(false);
    $('neurons-open').focus();
});
$('shade').addEventListener('click', () => showSide(false));
/* A window that becomes narrow, such as a phone that is turned. */
window.addEventListener('resize', () => {
    if (!hasRoom() && !$('neurons').hidden) showSide(false);
    $('shade').hidden = !narrow() || document.body.classList.contains('no-side');
});
scroll.addEventListener('scroll', () => document.querySelector('.bar').classList.toggle('scrolled', scroll.scrollTop > 4));

document.addEventListener('keydown', (e) => {
    if ($('settings').open || e.isComposing) return;
    const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName);
    if (e.key === 'Escape' && running) stop();
    else if (e.key === 'Escape' && !$('shade').hidden) $('shade').click();
    else if (e.key === '/' && !typing) {
        e.preventDefault();
        input.focus();
    } else if (e.key.toLowerCase() === 'o' && e.shiftKey && (e.ctrlKey || e.metaKey)) {
        e.preventDefault();
        $('new').click();
    }
});

/* Settings: what is typed counts at once. */
function applyTheme() {
    const dark = settings.theme === 'dark' || (settings.theme === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    picture.refresh();
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', applyTheme);
function fillSettings() {
    $('set-system').value = settings.system;
    $('set-key').value = settings.key;
    for (const name of numbers) $(`set-${name}`).value = settings[name] ?? '';
    $('settings-form').elements.theme.value = settings.theme;
}
function openSettings(focus) {
    fillSettings();
    if (!$('settings').open) $('settings').showModal();
    if (focus) $(focus).focus();
}
$('settings-open').addEventListener('click', () => openSettings());
$('settings-form').addEventListener('input', () => {
    settings.system = $('set-system').value;
    settings.key = $('set-key').value.trim();
    settings.theme = $('settings-form').elements.theme.value;
    for (const name of numbers) {
        const field = $(`set-${name}`);
        if (field.value === '' || !field.checkValidity()) delete settings[name];
        else settings[name] = Number(field.value);
    }
    store.set('settings', settings);
    applyTheme();
});
$('settings-reset').addEventListener('click', () => {
    settings = { system: '', key: settings.key, theme: 'auto' };
    store.set('settings', settings);
    fillSettings();
    applyTheme();
});
$('settings').addEventListener('close', () => {
    if (!server) connect();
});

/* Export and import. */
$('export').addEventListener('click', () => {
    const link = make('a', { download: 'powerinfer-conversations.json' });
    link.href = URL.createObjectURL(new Blob([JSON.stringify({ conversations }, null, 1)], { type: 'application/json' }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
});
$('import').addEventListener('click', () => $('file').click());
$('file').addEventListener('change', async () => {
    try {
        const read = readConversations(JSON.parse(await $('file').files[0].text()).conversations);
        const known = new Set(conversations.map((c) => c.id));
        conversations.push(...read.filter((c) => !known.has(c.id)));
        save();
        showList();
        $('live').textContent = `${read.length} conversations imported.`;
    } catch {
        notice('The file has no conversations that this page has exported.');
    }
    $('file').value = '';
});

applyTheme();
showSide(!narrow() && store.get('side', true));
showNeurons(hasRoom() && store.get('neurons', true));
showConversation(true);
connect().then(() => showConversation(true));
if (!matchMedia('(pointer: coarse)').matches) input.focus();
