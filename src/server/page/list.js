/* list.js: the list of conversations: by date, or the results of a search; they can be renamed,
 * deleted, exported and imported. */
let renaming = ''; /* id of the conversation whose title is being changed */
let listed = 200; /* number of conversations shown at first */
let found = null; /* results of the current search: [{ conversation, message, snippet }] */

const day = 24 * 3600 * 1000;
function groupOf(time) {
    const today = new Date().setHours(0, 0, 0, 0);
    if (time >= today) return 'Today';
    if (time >= today - day) return 'Yesterday';
    if (time >= today - 7 * day) return 'Previous 7 days';
    if (time >= today - 30 * day) return 'Previous 30 days';
    return new Date(time).toLocaleDateString('en', { month: 'long', year: 'numeric' });
}

function listItem(conversation, { snippet = null, message = null } = {}) {
    const { id, title } = conversation,
        isCurrent = shown?.conversation.id === id;
    const li = make('li', { className: isCurrent ? 'current' : '' });
    if (renaming === id) {
        li.append(make('input', { className: 'rename', value: title, maxLength: 200, ariaLabel: 'Title' }));
        return li;
    }
    const open = make(
        'button',
        { type: 'button', className: 'open', title },
        make('span', { className: 'name', textContent: title }),
    );
    if (snippet) open.append(make('span', { className: 'snippet' }, ...snippet));
    open.dataset.open = id;
    if (message) open.dataset.message = message;
    if (isCurrent) open.setAttribute('aria-current', 'page');
    const isBusy = [...running.values()].some((r) => r.conversation.id === id);
    if (isBusy || unseen.has(id))
        open.append(
            make('span', {
                className: isBusy ? 'badge busy' : 'badge',
                title: isBusy ? 'An answer is being written' : 'A new answer',
            }),
        );
    li.append(
        open,
        iconButton('edit', `Rename ${title}`, { rename: id }),
        iconButton('trash', `Delete ${title}`, { remove: id }),
    );
    return li;
}

function showList() {
    /* a title is being edited */
    if (document.activeElement.className === 'rename' && renaming) return;
    const focused = $('list').contains(document.activeElement) ? { ...document.activeElement.dataset } : null;
    const parts = [];
    if (found) {
        if (found.length)
            parts.push(make('ul', { className: 'list' }, ...found.map((f) => listItem(f.conversation, f))));
        else parts.push(make('p', { className: 'note none', textContent: 'Nothing found.' }));
    } else {
        let group = '',
            list = null;
        const all = [...conversations.values()].sort((a, b) => b.updated - a.updated);
        for (const c of all.slice(0, listed)) {
            if (groupOf(c.updated) !== group) {
                group = groupOf(c.updated);
                list = make('ul', { className: 'list' });
                parts.push(make('h3', { textContent: group }), list);
            }
            list.append(listItem(c));
        }
        if (all.length > listed)
            parts.push(
                make('button', { type: 'button', className: 'text more', textContent: `Show all ${all.length}` }),
            );
    }
    $('list').replaceChildren(...parts);
    for (const [name, value] of Object.entries(focused ?? {}))
        $('list')
            .querySelector(`[data-${name}="${CSS.escape(value)}"]`)
            ?.focus();
}

$('list').addEventListener('click', (e) => {
    const button = e.target.closest('button');
    if (!button) return;
    const { open, message, rename: renamed, remove } = button.dataset;
    if (button.classList.contains('more')) {
        listed = Infinity;
        showList();
    }
    if (open) {
        openConversation(open, { messageId: message });
        if (isNarrow()) showSide(false);
    } else if (renamed) {
        renaming = renamed;
        showList();
        const field = $('list').querySelector('.rename');
        field.focus();
        field.select();
    } else if (remove) {
        deleteConversation(remove);
        $('new').focus();
    }
});
function endRename(field, keepsTitle) {
    const id = renaming;
    if (!id) return;
    renaming = '';
    if (keepsTitle) rename(id, field.value);
    showList();
    $('list')
        .querySelector(`[data-open="${CSS.escape(id)}"]`)
        ?.focus();
}
$('list').addEventListener('keydown', (e) => {
    if (e.target.className === 'rename' && ['Enter', 'Escape'].includes(e.key)) {
        e.stopPropagation();
        endRename(e.target, e.key === 'Enter');
    } else if (e.target.className === 'open' && ['ArrowDown', 'ArrowUp'].includes(e.key)) {
        e.preventDefault();
        const all = [...$('list').querySelectorAll('.open')];
        (all[all.indexOf(e.target) + (e.key === 'ArrowDown' ? 1 : -1)] ?? $('search')).focus();
    } else if (e.target.className === 'open' && e.key === 'F2') {
        e.target.parentElement.querySelector('[data-rename]').click();
    }
});
$('list').addEventListener('focusout', (e) => {
    if (e.target.className === 'rename') endRename(e.target, true);
});

/* ---- search ---------------------------------------------------------------------------------- */

const foundAtMost = 100;

/* The part of a text where the words were found, with the words marked. */
function snippetOf(text, wanted) {
    const at = Math.max(0, text.toLowerCase().indexOf(wanted)),
        from = Math.max(0, at - 14);
    return [
        `${from ? '…' : ''}${text.slice(from, at)}`,
        make('mark', { textContent: text.slice(at, at + wanted.length) }),
        text.slice(at + wanted.length, at + wanted.length + 60),
    ];
}

let searches = 0;
async function search() {
    const wanted = $('search').value.trim().toLowerCase(),
        turn = ++searches;
    if (!wanted) {
        found = null;
        showList();
        return;
    }
    const hits = new Map();
    for (const conversation of conversations.values())
        if (conversation.title.toLowerCase().includes(wanted)) hits.set(conversation.id, { conversation });
    await storage.scan((m) => {
        const hit = hits.get(m.conversation),
            conversation = conversations.get(m.conversation);
        const text =
            conversation &&
            !hit?.message &&
            [m.content, ...m.files.map((f) => f.text)].find((t) => t.toLowerCase().includes(wanted));
        if (text)
            hits.set(m.conversation, {
                conversation,
                message: m.id,
                snippet: snippetOf(text.replace(/\s+/g, ' '), wanted),
            });
        return turn === searches;
    });
    if (turn !== searches) return;
    found = [...hits.values()].sort((a, b) => b.conversation.updated - a.conversation.updated).slice(0, foundAtMost);
    showList();
    announce(`${found.length} conversations found.`);
}
let searchTimer = 0;
$('search').addEventListener('input', () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(search, 120);
});
$('search').addEventListener('keydown', (e) => {
    if (e.key === 'Escape' && $('search').value) {
        e.stopPropagation();
        $('search').value = '';
        search();
    } else if (e.key === 'ArrowDown' || e.key === 'Enter') {
        e.preventDefault();
        $('list').querySelector('.open')?.[e.key === 'Enter' ? 'click' : 'focus']();
    }
});

/* ---- export and import ----------------------------------------------------------------------- */

const fileVersion = 2;

$('export').addEventListener('click', async () => {
    const all = [];
    for (const c of [...conversations.values()].sort((a, b) => b.updated - a.updated))
        all.push({ ...c, messages: await storage.messagesOf(c.id) });
    const link = make('a', { download: 'powerinfer-conversations.json' });
    link.href = URL.createObjectURL(
        new Blob([JSON.stringify({ version: fileVersion, conversations: all }, null, 1)], { type: 'application/json' }),
    );
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
});

/* Conversations that already exist receive the messages that they lack. */
async function importConversations(read) {
    for (const { conversation, messages } of read) {
        const known = conversations.get(conversation.id);
        const have = new Set(known ? (await storage.messagesOf(known.id)).map((m) => m.id) : []);
        if (!known) conversations.set(conversation.id, conversation);
        await storage.put(
            known ?? conversation,
            messages.filter((m) => !have.has(m.id)),
        );
    }
}
$('import').addEventListener('click', () => $('file').click());
$('file').addEventListener('change', async () => {
    try {
        const read = readConversations(JSON.parse(await $('file').files[0].text()).conversations);
        if (!read.length) throw new Error('no conversations');
        await importConversations(read);
        if (shown) openConversation(shown.conversation.id, { push: false });
        else showList();
        toast(`${read.length} ${read.length === 1 ? 'conversation' : 'conversations'} imported.`);
    } catch {
        notice('The file has no conversations that this page exported.');
    }
    $('file').value = '';
});

/* Converts the list of conversations that earlier versions of the page kept in localStorage. */
async function migrate() {
    const old = storage.get('conversations', null);
    if (!old) return;
    const read = readConversations(old),
        now = Date.now();
    read.forEach(({ conversation }, i) => {
        conversation.created = conversation.updated = now - i;
    }); /* the newest came first */
    await importConversations(read);
    storage.set('conversations', undefined);
}
