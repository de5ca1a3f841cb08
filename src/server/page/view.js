/* view.js: the messages on the page. A message keeps its elements while it is on the path, and only
 * changed text is rendered again, so that selections and opened folds survive streaming. */
const items = new Map(); /* message id -> elements */
let editing = null; /* { id, text, area } of the message that is being edited */

const scroll = $('scroll');
const isAtEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
const toEnd = () => {
    scroll.scrollTop = scroll.scrollHeight;
};

function makeItem(message) {
    const isUser = message.role === 'user';
    const item = {
        body: make('div', { className: 'body' }),
        files: make('ul', { className: 'attachments' }),
        thoughts: make('div', { className: 'body' }),
        summary: make('summary'),
        touched: false,
        error: make('p', { className: 'failed' }),
        actions: make('div', { className: 'actions' }),
        editor: null,
    };
    item.reasoning = make('details', { className: 'reasoning' }, item.summary, item.thoughts);
    item.summary.addEventListener('click', () => {
        item.touched = true;
    });
    item.li = make(
        'li',
        { className: `message ${message.role}` },
        make('h2', { className: 'hidden', textContent: isUser ? 'You' : 'Answer' }),
        ...(isUser ? [] : [item.reasoning]),
        item.files,
        item.body,
        item.error,
        item.actions,
    );
    item.li.dataset.id = message.id;
    item.files.replaceChildren(
        ...message.files.map((f) =>
            make(
                'li',
                {},
                make(
                    'details',
                    { className: 'attachment' },
                    make(
                        'summary',
                        {},
                        icon('file'),
                        make('span', { textContent: f.name }),
                        make('span', { className: 'note', textContent: sizeText(f.text.length) }),
                    ),
                    make('pre', { textContent: f.text, tabIndex: 0 }),
                ),
            ),
        ),
    );
    return item;
}

function drawReasoning(item, message) {
    const isThinking = isRunning(message) && !message.content;
    item.reasoning.hidden = !message.reasoning;
    if (!message.reasoning) return;
    if (!item.touched) item.reasoning.open = isThinking && !settings.folded;
    item.summary.textContent = isThinking
        ? 'Thinking…'
        : message.thought
          ? `Thought for ${message.thought < 9.95 ? message.thought.toFixed(1) : Math.round(message.thought)} s`
          : 'Reasoning';
    markdown.update(item.thoughts, message.reasoning);
}

function figureOf(message) {
    const parts = [];
    if (message.tokens) parts.push(`${message.tokens} ${message.tokens === 1 ? 'token' : 'tokens'}`);
    if (message.rate) parts.push(`${message.rate.toFixed(1)}/s`);
    if (message.state === 'stopped') parts.push('stopped');
    if (message.state === 'cut')
        parts.push(isFull(message) ? 'cut off: the context is full' : 'cut off: the limit of tokens is reached');
    return parts.join(' · ');
}
const isFull = (message) => contextSize() > 0 && message.used >= contextSize() - 1;

function drawActions(item, { message, siblings }, isLast) {
    const row = [],
        { id } = message;
    if (siblings.length > 1) {
        const at = siblings.indexOf(message);
        const back = iconButton('back', 'Previous version', { branch: -1 }),
            on = iconButton('on', 'Next version', { branch: 1 });
        back.disabled = at === 0;
        on.disabled = at === siblings.length - 1;
        row.push(
            make(
                'span',
                { className: 'branches' },
                back,
                make('span', { textContent: `${at + 1}/${siblings.length}` }),
                on,
            ),
        );
    }
    if (!isRunning(message)) {
        row.push(iconButton('copy', 'Copy', { action: 'copy' }));
        if (message.role === 'user') row.push(iconButton('edit', 'Edit', { action: 'edit' }));
        else
            row.push(
                iconButton('again', message.state === 'failed' || message.error ? 'Try again' : 'Regenerate', {
                    action: 'again',
                }),
            );
        const canContinue =
            isLast &&
            message.content &&
            ['interrupted', 'stopped', 'cut', 'failed'].includes(message.state) &&
            !isFull(message);
        if (canContinue)
            row.push(make('button', { type: 'button', className: 'text continue', textContent: 'Continue' }));
        if (canContinue) row.at(-1).dataset.action = 'continue';
        const figure = figureOf(message);
        if (figure) row.push(make('span', { className: 'figure', textContent: figure }));
    }
    const focused = item.actions.contains(document.activeElement) ? document.activeElement.dataset : null;
    item.actions.replaceChildren(...row);
    const same =
        focused &&
        row
            .flatMap((e) => [e, ...e.children])
            .find((b) =>
                focused.action
                    ? b.dataset.action === focused.action
                    : focused.branch && b.dataset.branch === focused.branch,
            );
    same?.focus();
    item.li.classList.toggle('is-last', isLast);
    item.li.dataset.id = id;
}

function drawEditor(item, message) {
    const isEdited = editing?.id === message.id;
    item.actions.hidden = isEdited;
    if (isEdited) item.body.hidden = item.files.hidden = true;
    if (isEdited && !item.editor) {
        const area = make('textarea', { value: editing.text, ariaLabel: 'Edit the message' });
        const note = make('p', { className: 'failed', textContent: editing.reason ?? '', hidden: !editing.reason });
        item.editor = make(
            'div',
            { className: 'editor' },
            area,
            note,
            make(
                'div',
                {},
                make('button', { type: 'button', className: 'text', textContent: 'Cancel' }),
                make('button', { type: 'button', className: 'primary', textContent: 'Send' }),
            ),
        );
        item.editor.querySelectorAll('button').forEach((b, i) => {
            b.dataset.action = i ? 'send' : 'cancel';
        });
        item.actions.before(item.editor);
        area.style.height = `${Math.min(area.scrollHeight + 4, innerHeight * 0.5)}px`;
        area.focus();
        area.setSelectionRange(area.value.length, area.value.length);
    } else if (!isEdited && item.editor) {
        item.editor.remove();
        item.editor = null;
    }
}

function drawItem(item, entry, isLast) {
    const { message } = entry;
    drawReasoning(item, message);
    item.files.hidden = !message.files.length;
    if (message.role === 'user' || completes()) {
        if (item.body.textContent !== message.content) item.body.replaceChildren(message.content);
        item.body.classList.toggle('plain', completes());
        markdown.forget(item.body);
    } else {
        markdown.update(item.body, message.content);
    }
    item.body.classList.toggle('waiting', isRunning(message) && !(message.reasoning && !message.content));
    item.body.hidden = message.role === 'user' && !message.content;
    const text =
        message.error ||
        (message.state === 'interrupted' ? 'The page was closed while the answer was being written.' : '');
    item.error.textContent = text;
    item.error.hidden = !text;
    item.error.classList.toggle('waits', isRunning(message));
    drawActions(item, entry, isLast);
    drawEditor(item, message);
}

/* Shows the whole conversation. follow: scroll to the end; fresh: it is a different conversation
 * than before. */
function showConversation({ follow = false, fresh = false } = {}) {
    updatePath();
    const path = currentPath(),
        end = follow || isAtEnd();
    if (fresh) items.clear();
    for (const id of items.keys()) if (!path.some((p) => p.message.id === id)) items.delete(id);
    const list = $('messages');
    path.forEach((entry, i) => {
        const { id } = entry.message;
        if (!items.has(id)) items.set(id, makeItem(entry.message));
        const item = items.get(id);
        if (list.children[i] !== item.li) list.insertBefore(item.li, list.children[i] ?? null);
        drawItem(item, entry, i === path.length - 1);
        if (isRunning(entry.message)) watch(entry.message);
    });
    while (list.children.length > path.length) list.lastChild.remove();
    $('empty').hidden = path.length > 0;
    list.hidden = path.length === 0;
    showControls();
    showTitle();
    showList();
    if (end) toEnd();
    showToEnd();
}

function showControls() {
    const answer = currentAnswer();
    $('stop').hidden = !answer;
    $('send').hidden = !!answer;
    showFigures(lastAnswer());
    sizeInput();
}
const lastAnswer = () => currentPath().findLast((p) => p.message.role === 'assistant')?.message;

function showFigures(message) {
    const all = contextSize();
    $('rate').textContent = message && isRunning(message) && message.rate ? `${message.rate.toFixed(1)} tokens/s` : '';
    $('used').textContent = message?.used && all ? `${message.used} of ${all} tokens of context` : '';
}

function showTitle() {
    const title = shown?.conversation.title ?? 'New conversation';
    const model = (server?.model ?? 'PowerInfer').replace(/\.gguf$/, '');
    $('title').textContent = title;
    $('model').textContent = server ? model : '';
    $('model').hidden = !!models.length;
    $('models').hidden = !models.length;
    $('models').replaceChildren(...models.map((name) => new Option(name, name, false, name === server?.model)));
    document.title = shown ? `${title} – ${model}` : model;
}

function showServer() {
    const params = server?.default_generation_settings?.params ?? {};
    for (const name of numbers) if (name in params) $(`set-${name}`).placeholder = params[name];
    $('greeting').textContent = completes() ? 'Begin a text, and the model goes on.' : 'What would you like to know?';
    $('about').textContent = completes()
        ? 'This model has no chat template: it continues texts instead of answering.'
        : server?.architecture
          ? `${server.architecture}, ${server.mode} mode, ${server.default_generation_settings.n_ctx} tokens of context`
          : '';
    $('thinks-row').hidden = !canThink();
    showConversation();
}

/* While an answer arrives: updates only its message, a few times a second. */
const waiting = new Set();
let soon = 0;
function showMessageSoon(message) {
    waiting.add(message);
    soon ||= setTimeout(() => {
        soon = 0;
        const end = isAtEnd(),
            path = currentPath();
        path.forEach((entry, i) => {
            if (waiting.has(entry.message) && items.has(entry.message.id))
                drawItem(items.get(entry.message.id), entry, i === path.length - 1);
        });
        waiting.clear();
        if (end) toEnd();
        showToEnd();
    }, 40);
}

function showToEnd() {
    $('to-end').hidden = isAtEnd();
}
scroll.addEventListener(
    'scroll',
    () => {
        document.querySelector('.bar').classList.toggle('scrolled', scroll.scrollTop > 4);
        showToEnd();
    },
    { passive: true },
);
$('to-end').addEventListener('click', () => {
    toEnd();
    input.focus();
});

function revealMessage(message) {
    const { li } = items.get(message.id);
    li.scrollIntoView({ block: 'center' });
    li.classList.add('found');
    setTimeout(() => li.classList.remove('found'), 2500);
}

function focusBranch(message, step) {
    const buttons = [...items.get(message.id).actions.querySelectorAll('[data-branch]')];
    (
        buttons.find((b) => Number(b.dataset.branch) === step && !b.disabled) ?? buttons.find((b) => !b.disabled)
    )?.focus();
}

/* ---- actions of the buttons of messages ------------------------------------------------------ */

function edit(message, text = message.content, reason = '') {
    const before = editing && items.get(editing.id);
    editing = { id: message.id, text, reason };
    if (before) before.editor?.remove();
    if (before) before.editor = null;
    showConversation();
}
function cancelEdit() {
    const { id } = editing;
    editing = null;
    showConversation();
    items.get(id)?.actions.querySelector('[data-action=edit]')?.focus();
}
function finishEdit(area) {
    const message = shownMessage(editing.id),
        text = area.value;
    if (!text.trim() && !message.files.length) return;
    editing = null;
    const of = shown;
    sendMessage(text, message.files, message.parent, ({ reason }) => {
        if (shown === of && shownMessage(message.id)) edit(message, text, reason);
    });
}

async function copyWith(button, text) {
    const show = (name, word) => {
        button.querySelector('use').setAttribute('href', `#icon-${name}`);
        const label = button.querySelector('span');
        if (label) label.textContent = word;
    };
    await copyText(text);
    show('check', 'Copied');
    setTimeout(show, 1500, 'copy', 'Copy');
}

const actions = {
    copy: (message, button) => copyWith(button, contentOf(message)),
    block: (message, button) => copyWith(button, button.closest('.block').querySelector('pre').textContent),
    edit: (message) => edit(message),
    cancel: () => cancelEdit(),
    send: (message, button) => finishEdit(button.closest('.editor').querySelector('textarea')),
    again: (message) => regenerate(message),
    continue: (message) => continueAnswer(message),
};
$('messages').addEventListener('click', (e) => {
    const button = e.target.closest('button'),
        message = shownMessage(button?.closest('.message').dataset.id);
    if (!message) return;
    if (button.dataset.branch) switchBranch(message, Number(button.dataset.branch));
    else actions[button.dataset.action]?.(message, button);
});
$('messages').addEventListener('keydown', (e) => {
    const box = e.target.closest('.editor');
    if (!box || e.target.tagName !== 'TEXTAREA') return;
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing && !hasTouch()) {
        e.preventDefault();
        finishEdit(e.target);
    } else if (e.key === 'Escape') {
        e.stopPropagation();
        cancelEdit();
    }
});
