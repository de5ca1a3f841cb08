/* chat.js: the conversation that is shown, and the actions in it. */
let conversations = new Map(); /* id -> record, for all conversations */
/* { conversation, messages: Map, path }; null: a new conversation, stored once it has a message */
let shown = null;
const unseen = new Set(); /* ids of conversations whose answer ended while another was shown */

const isShownConversation = (conversation) => shown?.conversation.id === conversation.id;
const shownMessage = (id) => shown?.messages.get(id);
const isOnPath = (message) => !!shown?.path.some((p) => p.message === message);
const currentPath = () => shown?.path ?? [];
const lastMessage = () => currentPath().at(-1)?.message;
/* The answer that is being written at the end of the shown path. */
const currentAnswer = () => (lastMessage() && isRunning(lastMessage()) ? lastMessage() : null);

function updatePath() {
    if (shown) shown.path = pathOf(shown.messages, shown.conversation.chosen);
}

/* Shows a conversation; null: a new one. With a message's id, shows the branch that contains the
 * message. */
let opening = 0;
async function openConversation(id, { messageId = '', push = true } = {}) {
    const turn = ++opening;
    const conversation = conversations.get(id) ?? null;
    const list = conversation ? await storage.messagesOf(conversation.id) : [];
    if (turn !== opening) return;
    leaveDraft();
    editing = null;
    shown = conversation && { conversation, messages: new Map(list.map((m) => [m.id, m])), path: [] };
    for (const run of running.values())
        if (shown && isShownConversation(run.conversation)) shown.messages.set(run.message.id, run.message);
    const target = shownMessage(messageId);
    if (target) choosePath(conversation, shown.messages, target);
    unseen.delete(id);
    setAddress(push);
    takeDraft();
    showConversation({ fresh: true, follow: !target });
    if (target) revealMessage(target);
}

/* Puts the conversation into the address, so that a reload and Back find it. */
function setAddress(push) {
    const hash = shown ? `#${shown.conversation.id}` : '';
    if (location.hash === hash) return;
    history[push ? 'pushState' : 'replaceState'](null, '', hash || location.pathname + location.search);
}

function keepConversation(messages = []) {
    const { conversation } = shown;
    conversation.updated = Date.now();
    updatePath();
    return storage.put(conversation, messages);
}

function addMessage(parent, role, more) {
    const message = newMessage(shown.conversation, parent, role, more);
    shown.messages.set(message.id, message);
    shown.conversation.chosen[parent] = message.id;
    return message;
}

/* Removes messages, and the conversation if it becomes empty. Returns whether the conversation
 * still exists. */
function takeOut(conversation, messages, ids) {
    /* it may have been opened again in the meantime */
    if (isShownConversation(conversation)) messages = shown.messages;
    for (const id of ids) {
        messages.delete(id);
        for (const [parent, child] of Object.entries(conversation.chosen))
            if (child === id) delete conversation.chosen[parent];
    }
    if (messages.size) {
        storage.removeMessages(ids);
        storage.put(conversation);
        return true;
    }
    conversations.delete(conversation.id);
    storage.remove(conversation.id);
    if (isShownConversation(conversation)) {
        shown = null;
        setAddress(false);
    }
    return false;
}

/* Adds a message below `parent` and requests an answer. A message that the server refuses returns
 * to the field where it was written. */
function sendMessage(content, files, parent, putBack) {
    if (!shown) {
        const conversation = newConversation(content || files[0].name);
        conversations.set(conversation.id, conversation);
        shown = { conversation, messages: new Map(), path: [] };
        setAddress(true);
    }
    const { conversation, messages } = shown;
    const question = addMessage(parent, 'user', { content, files });
    const answer = addMessage(question.id, 'assistant');
    keepConversation([question, answer]);
    writeAnswer(conversation, messages, answer, (reason) => {
        const isLeft = takeOut(conversation, messages, [answer.id, question.id]);
        putBack({ content, files, reason, conversationId: isLeft ? conversation.id : '' });
    });
}

const refusal =
    ({ conversation, messages }, ids) =>
    (reason) => {
        if (ids.length) takeOut(conversation, messages, ids);
        if (isShownConversation(conversation)) notice(reason);
    };

function regenerate(message) {
    const { conversation, messages } = shown;
    const isEmpty = !message.content && !message.reasoning;
    const answer = isEmpty ? message : addMessage(message.parent, 'assistant');
    keepConversation([answer]);
    writeAnswer(
        conversation,
        messages,
        answer,
        isEmpty
            ? (reason) => {
                  Object.assign(message, { state: 'failed', error: reason });
                  storage.putMessage(message);
              }
            : refusal(shown, [answer.id]),
    );
}

function continueAnswer(message) {
    const { state } = message,
        of = shown;
    writeAnswer(of.conversation, of.messages, message, (reason) => {
        Object.assign(message, { state, error: '' });
        storage.putMessage(message);
        refusal(of, [])(reason);
    });
}

/* Shows another branch: step is -1 or 1. */
function switchBranch(message, step) {
    const { siblings } = shown.path.find((p) => p.message === message);
    const next = siblings[siblings.indexOf(message) + step];
    if (!next) return;
    shown.conversation.chosen[message.parent] = next.id;
    updatePath();
    storage.put(shown.conversation);
    showConversation();
    focusBranch(next, step);
}

/* ---- changes of the list --------------------------------------------------------------------- */

function rename(id, title) {
    const conversation = conversations.get(id);
    if (!conversation || !title.trim()) return;
    conversation.title = title.trim().slice(0, 200);
    storage.put(conversation);
    showList();
    showTitle();
}

async function deleteConversation(id) {
    const conversation = conversations.get(id);
    const messages = (await storage.messagesOf(id)).map((m) => running.get(m.id)?.message ?? m);
    forget(id);
    await storage.remove(id);
    toast(`Deleted “${conversation.title}”.`, 'Undo', async () => {
        for (const m of messages) if (isRunning(m)) m.state = 'interrupted';
        conversations.set(id, conversation);
        await storage.put(conversation, messages);
        openConversation(id);
    });
}

/* Called for a conversation deleted here or in another tab. */
function forget(id) {
    dropAnswers(id);
    conversations.delete(id);
    if (shown?.conversation.id === id) openConversation(null, { push: false });
    else showList();
}

/* ---- changes by other tabs ------------------------------------------------------------------- */

function hear(news) {
    hearAnswers(news);
    const { conversation, messages = [], removed, removedMessages = [] } = news;
    if (removed) forget(removed);
    if (conversation) {
        const known = conversations.get(conversation.id);
        conversations.set(conversation.id, known ? Object.assign(known, conversation) : conversation);
        showList();
    }
    if (!shown) return;
    const mine = messages.filter((m) => m.conversation === shown.conversation.id && !running.has(m.id));
    let hasNew = removedMessages.length > 0 || (conversation && isShownConversation(conversation));
    for (const m of mine) {
        const known = shownMessage(m.id);
        hasNew ||= known?.state !== m.state;
        if (known) showMessageSoon(Object.assign(known, m));
        else shown.messages.set(m.id, m);
    }
    for (const id of removedMessages) if (!running.has(id)) shown.messages.delete(id);
    if (hasNew) showConversation();
}
