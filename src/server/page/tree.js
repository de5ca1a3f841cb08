/* tree.js: a conversation is a tree of messages, each with the id of its parent ('' at the top).
 * Regenerating an answer or editing a message adds a sibling. conversation.chosen names the child
 * of a message that is shown; the default is the newest. */
let lastCreated = 0;

function newMessage(conversation, parent, role, more = {}) {
    lastCreated = Math.max(Date.now(), lastCreated + 1);
    return {
        id: newId(),
        conversation: conversation.id,
        parent,
        role,
        content: '',
        reasoning: '',
        files: [],
        created: lastCreated,
        state: '',
        error: '',
        tokens: 0,
        rate: 0,
        used: 0,
        thought: 0,
        ...more,
    };
}
/* States of an answer. '': complete. running: a tab writes it. interrupted: the page or the
 * connection was lost. stopped: by the user. cut: the token limit was reached. failed: the server
 * gave an error. */
const states = ['', 'running', 'interrupted', 'stopped', 'cut', 'failed'];

function newConversation(title) {
    return {
        id: newId(),
        title: title.trim().split('\n')[0].slice(0, 80) || 'Conversation',
        created: Date.now(),
        updated: Date.now(),
        chosen: {},
    };
}

/* The shown path from the top, each message with its siblings. */
function pathOf(messages, chosen) {
    const children = new Map();
    for (const m of [...messages.values()].sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1))) {
        if (!children.has(m.parent)) children.set(m.parent, []);
        children.get(m.parent).push(m);
    }
    const path = [];
    for (let parent = ''; children.has(parent);) {
        const siblings = children.get(parent);
        const message = siblings.find((m) => m.id === chosen[parent]) ?? siblings.at(-1);
        path.push({ message, siblings });
        parent = message.id;
    }
    return path;
}

/* The messages above a message, from the top, without the message itself. */
function historyOf(messages, message) {
    const list = [];
    for (let m = messages.get(message.parent); m && list.length < messages.size; m = messages.get(m.parent))
        list.unshift(m);
    return list;
}

/* Makes the path go through a message. */
function choosePath(conversation, messages, message) {
    for (let m = message, n = 0; m && n <= messages.size; m = messages.get(m.parent), n++)
        conversation.chosen[m.parent] = m.id;
}

/* ---- files of conversations ------------------------------------------------------------------ */

/* Reads conversations to import; only data of the right shape is accepted. Files of version 1 have
 * a list of messages without ids, each the child of the previous one. */
function readConversations(from) {
    const text = (x, most) => (typeof x === 'string' ? x.slice(0, most) : '');
    const number = (x) => (Number.isFinite(x) && x > 0 ? x : 0);
    const id = (x) => (typeof x === 'string' && /^[\w-]{1,64}$/.test(x) ? x : '');
    const readFiles = (files) =>
        (Array.isArray(files) ? files : [])
            .slice(0, 100)
            .map((f) => ({ name: text(f?.name, 200) || 'file', text: text(f?.text, 1e7) }));

    return (Array.isArray(from) ? from : [])
        .filter((c) => Array.isArray(c?.messages))
        .slice(0, 5000)
        .map((c) => {
            const created = number(c.created) || Date.now();
            const conversation = {
                id: id(c.id) || newId(),
                title: text(c.title, 200) || 'Conversation',
                created,
                updated: number(c.updated) || created,
                chosen: {},
            };
            let before = '';
            const messages = c.messages
                .filter((m) => ['user', 'assistant'].includes(m?.role))
                .slice(0, 20000)
                .map((m, i) => {
                    const message = {
                        id: id(m.id) || `${conversation.id}-${i}`,
                        conversation: conversation.id,
                        parent: 'parent' in m ? id(m.parent) : before,
                        role: m.role,
                        content: text(m.content, 1e7),
                        reasoning: text(m.reasoning, 1e7),
                        files: readFiles(m.files),
                        created: number(m.created) || i + 1,
                        state: states.includes(m.state) ? m.state : '',
                        error: text(m.error, 2000),
                        tokens: number(m.tokens),
                        rate: number(m.rate),
                        used: number(m.used),
                        thought: number(m.thought),
                    };
                    if (message.state === 'running') message.state = 'interrupted';
                    const figure = /^(?:(\d+) tokens)?(?: · )?(?:([\d.]+)\/s)?/.exec(
                        text(m.figure, 200),
                    ); /* version 1 */
                    message.tokens ||= Number(figure[1] ?? 0);
                    message.rate ||= Number(figure[2] ?? 0);
                    before = message.id;
                    return message;
                });
            for (const [parent, child] of Object.entries(c.chosen ?? {}).slice(0, 20000))
                if ((parent === '' || id(parent)) && id(child)) conversation.chosen[parent] = child;
            return { conversation, messages };
        });
}
