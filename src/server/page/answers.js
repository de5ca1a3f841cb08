/* answers.js: answers while the server writes them. They continue whichever conversation is shown,
 * and are saved several times a second, so that a reload loses almost nothing. The tab that sent
 * the request writes the message; the other tabs follow what it saves. */
const running = new Map(); /* message id -> { message, conversation, controller, timer } of this tab */
const saveEvery = 300; /* milliseconds */
const patience = 1500; /* a tab that does not reply for so long counts as gone: the model may keep
                         * the machine busy */
const busyRetries = 5;

const isRunning = (message) => message.state === 'running';

/* Updates what the user sees of the answer so far and its state. */
function keep(run) {
    clearTimeout(run.timer);
    run.timer = 0;
    return storage.putMessage(run.message);
}
function changed(run) {
    run.timer ||= setTimeout(() => keep(run), saveEvery);
    showMessageSoon(run.message);
}
/* A database does not finish its work while the page closes, so the last text goes to localStorage;
 * the next start moves it into the message. */
const lastWords = (id) => `unsaved.${id}`;
addEventListener('pagehide', () => {
    for (const { message } of running.values()) storage.set(lastWords(message.id), message);
});
async function recoverAnswers() {
    for (const name of storage.names('unsaved.')) {
        const message = storage.get(name, null);
        storage.set(name, undefined);
        if (!message) continue; /* another tab has just saved the message */
        const kept = (await storage.messagesOf(message.conversation)).find((m) => m.id === message.id);
        if (kept && kept.content.length + kept.reasoning.length < message.content.length + message.reasoning.length)
            await storage.putMessage({ ...message, ...(['running', 'interrupted'].includes(message.state) && { state: 'interrupted', error: '' }) });
    }
}

function take(run, { name, data }) {
    const { message } = run,
        isShown = isOnPath(message);
    if (name === 'powerinfer') {
        if (isShown) picture.update(data);
        return;
    }
    if (data.error) throw Object.assign(new Error(data.error.message), { state: 'failed' });
    const choice = data.choices?.[0],
        t = data.timings;
    const thought = choice?.delta?.reasoning_content ?? '',
        content = choice?.delta?.content ?? choice?.text ?? '';
    message.reasoning += thought;
    message.content += content;
    if (thought) run.thinkingSince ??= Date.now();
    if (run.thinkingSince) message.thought = Math.max(0.1, (Date.now() - run.thinkingSince) / 1000);
    if (content) run.thinkingSince = 0;
    if (choice?.finish_reason === 'length') run.cut = true;
    if (choice?.finish_reason) run.complete = true;
    if (t) {
        message.tokens = run.before + t.predicted_n;
        message.rate = t.predicted_per_second || message.rate;
        message.used = t.prompt_n + t.cache_n + t.predicted_n;
        if (isShown) {
            picture.rate(message.rate);
            showFigures(message);
        }
    }
}

const wait = (seconds, signal) =>
    new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, 1000 * seconds);
        signal.addEventListener(
            'abort',
            () => {
                clearTimeout(timer);
                reject(signal.reason);
            },
            { once: true },
        );
    });

/* Sends the request; retries a few times while the server's queue is full. */
async function ask(run, path, body) {
    const { signal } = run.controller;
    for (let tries = 1; ; tries++) {
        const reply = await fetch(path, { method: 'POST', headers: headers(), body: JSON.stringify(body), signal });
        if (reply.ok) return reply;
        const e = await failure(reply);
        if (reply.status !== 503 || tries > busyRetries) throw e;
        run.message.error = `${e.message}. Trying again in ${e.retryAfter} s.`.replace('..', '.');
        changed(run);
        await wait(Math.min(e.retryAfter, 30), signal);
        run.message.error = '';
    }
}

/* Lets the server write `message`, or continue it. Calls `refused` instead when the server does not
 * accept the request, for example a prompt longer than the context. */
async function writeAnswer(conversation, messages, message, refused) {
    const run = {
        message,
        conversation,
        controller: new AbortController(),
        timer: 0,
        before: message.tokens,
        cut: false,
        complete: false,
    };
    const [path, body] = requestFor([...historyOf(messages, message), ...(message.content ? [message] : [])]);
    Object.assign(message, { state: 'running', error: '' });
    running.set(message.id, run);
    keep(run);
    notice();
    showConversation({ follow: true });
    announce('The answer is being written.');
    try {
        for await (const event of events(await ask(run, path, body))) {
            take(run, event);
            changed(run);
        }
        message.state = run.cut ? 'cut' : '';
        announce('The answer is complete.');
        if (!server?.architecture) connect(); /* the model was loaded for this answer */
    } catch (e) {
        if (run.complete) {
            /* only data after the end of the answer was lost */
            message.state = run.cut ? 'cut' : '';
        } else if (e.name === 'AbortError') {
            message.state = 'stopped';
            message.error = '';
            announce('Stopped.');
        } else {
            message.state = e.status || e.state ? 'failed' : 'interrupted';
            message.error = e.name === 'TypeError' ? 'The connection to the server was lost.' : e.message;
            if (e.name === 'TypeError') connect();
            if (e.status === 401) askForKey();
            else announce(message.error);
        }
        run.refusal = [400, 413, 422].includes(e.status) ? e.message : '';
    }
    running.delete(message.id);
    if (run.deleted) {
        clearTimeout(run.timer);
    } else if (run.refusal) {
        clearTimeout(run.timer);
        refused(run.refusal);
    } else {
        /* the connection may have failed because the page is closing */
        storage.set(lastWords(message.id), message);
        keep(run).then(() => storage.set(lastWords(message.id), undefined));
    }
    if (isShownConversation(conversation) || run.refusal) {
        showConversation();
    } else if (!run.deleted) {
        unseen.add(conversation.id);
        showList();
    }
}

/* Also stops an answer that another tab writes. */
function stopAnswer(message) {
    const run = running.get(message.id);
    if (run) run.controller.abort();
    else storage.tell({ stop: message.id });
}

/* The conversation was deleted: stops its answers. */
function dropAnswers(conversationId) {
    for (const run of running.values()) {
        if (run.conversation.id !== conversationId) continue;
        run.deleted = true;
        run.controller.abort();
    }
}

/* ---- answers of other tabs ------------------------------------------------------------------- */

const watched = new Map(); /* message id -> time of the last sign from the tab that writes it */

/* Watches a message that was being written when it was saved. Either another tab still writes it
 * and sends signs, or the page that wrote it was closed; then this page can continue it. */
async function watch(message) {
    const { id } = message;
    if (running.has(id) || watched.has(id)) return;
    watched.set(id, 0);
    for (;;) {
        const asked = Date.now();
        storage.tell({ whose: id });
        await new Promise((resolve) => setTimeout(resolve, patience));
        const now = shownMessage(id);
        if (!now || !isRunning(now) || running.has(id)) break;
        if (watched.get(id) >= asked) continue;
        now.state = 'interrupted';
        storage.putMessage(now);
        showConversation();
        break;
    }
    watched.delete(id);
}

function hearAnswers({ whose, mine, stop, messages = [] }) {
    if (whose && running.has(whose)) storage.tell({ mine: whose });
    if (stop) running.get(stop)?.controller.abort();
    for (const id of [mine, ...messages.map((m) => m.id)]) if (watched.has(id)) watched.set(id, Date.now());
}
