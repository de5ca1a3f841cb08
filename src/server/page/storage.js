/* storage.js: the data that the browser stores. Conversations and messages are separate records of
 * an IndexedDB database, so that tabs that write at the same time do not overwrite each other: only
 * the tab that created a message writes it, and branches are joined when a conversation is read.
 * Tabs notify each other of what they wrote. Without a database the data lasts as long as the
 * page. */
const storage = (() => {
    const memory = { conversations: new Map(), messages: new Map() };
    const channel = 'BroadcastChannel' in window ? new BroadcastChannel('powerinfer') : null;
    let onNews = () => {};
    if (channel) channel.onmessage = (e) => onNews(e.data);

    const opened = new Promise((resolve) => {
        let request;
        try {
            request = indexedDB.open('powerinfer', 1);
        } catch {
            resolve(null);
            return;
        }
        request.onupgradeneeded = () => {
            request.result.createObjectStore('conversations', { keyPath: 'id' });
            request.result.createObjectStore('messages', { keyPath: 'id' }).createIndex('conversation', 'conversation');
        };
        request.onsuccess = () => {
            request.result.onversionchange = () => request.result.close();
            resolve(request.result);
        };
        request.onerror = () => resolve(null);
    });
    opened.then((db) => {
        if (!db) notice('This browser window keeps no conversations: they are lost when it is closed.');
    });

    const result = (request) =>
        new Promise((resolve, reject) => {
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => reject(request.error);
        });
    const read = async (store) => (await opened)?.transaction(store).objectStore(store);

    /* Runs `work` on both stores; resolves when its changes are on disk. */
    async function write(work) {
        const db = await opened;
        if (!db) return false;
        try {
            await new Promise((resolve, reject) => {
                const transaction = db.transaction(['conversations', 'messages'], 'readwrite');
                transaction.oncomplete = resolve;
                transaction.onabort = () => reject(transaction.error);
                work(transaction.objectStore('conversations'), transaction.objectStore('messages'));
            });
        } catch (e) {
            notice(
                e?.name === 'QuotaExceededError'
                    ? 'The browser has no room left: export the conversations and delete some.'
                    : `The browser could not keep the conversation: ${e?.message ?? 'no reason given'}`,
            );
        }
        return true;
    }

    async function conversations() {
        const store = await read('conversations');
        return store ? result(store.getAll()) : [...memory.conversations.values()];
    }
    async function messagesOf(id) {
        const store = await read('messages');
        return store
            ? result(store.index('conversation').getAll(id))
            : [...memory.messages.values()].filter((m) => m.conversation === id);
    }

    async function put(conversation, messages = []) {
        tell({ conversation, messages });
        if (
            await write((c, m) => {
                c.put(conversation);
                for (const message of messages) m.put(message);
            })
        )
            return;
        memory.conversations.set(conversation.id, conversation);
        for (const message of messages) memory.messages.set(message.id, message);
    }
    /* Writes a message of a conversation that another tab may have deleted in the meantime. */
    async function putMessage(message) {
        tell({ messages: [message] });
        if (
            await write((c, m) => {
                c.getKey(message.conversation).onsuccess = (e) => {
                    if (e.target.result) m.put(message);
                };
            })
        )
            return;
        memory.messages.set(message.id, message);
    }
    async function remove(id) {
        tell({ removed: id });
        if (
            await write((c, m) => {
                c.delete(id);
                m.index('conversation').getAllKeys(id).onsuccess = (e) =>
                    e.target.result.forEach((key) => m.delete(key));
            })
        )
            return;
        memory.conversations.delete(id);
        for (const message of await messagesOf(id)) memory.messages.delete(message.id);
    }
    async function removeMessages(ids) {
        tell({ removedMessages: ids });
        if (await write((c, m) => ids.forEach((id) => m.delete(id)))) return;
        for (const id of ids) memory.messages.delete(id);
    }

    /* Visits all messages in chunks until visit() returns false. */
    async function scan(visit) {
        if (!(await opened)) {
            [...memory.messages.values()].every(visit);
            return;
        }
        for (let range = null; ;) {
            const some = await result((await read('messages')).getAll(range, 200));
            if (!some.length || !some.every(visit)) return;
            range = IDBKeyRange.lowerBound(some.at(-1).id, true);
        }
    }

    /* Notifies the other tabs. */
    function tell(news) {
        channel?.postMessage(news);
    }

    /* Small values that are needed at once: settings and panels. */
    function get(name, otherwise) {
        try {
            return JSON.parse(localStorage.getItem(`powerinfer.${name}`)) ?? otherwise;
        } catch {
            return otherwise;
        }
    }
    function set(name, value) {
        try {
            if (value === undefined) localStorage.removeItem(`powerinfer.${name}`);
            else localStorage.setItem(`powerinfer.${name}`, JSON.stringify(value));
        } catch {
            /* private windows may refuse storage: the setting lasts as long as the page */
        }
    }

    function names(prefix) {
        try {
            return Object.keys(localStorage)
                .filter((k) => k.startsWith(`powerinfer.${prefix}`))
                .map((k) => k.slice('powerinfer.'.length));
        } catch {
            return [];
        }
    }

    return {
        conversations,
        messagesOf,
        put,
        putMessage,
        remove,
        removeMessages,
        scan,
        tell,
        get,
        set,
        names,
        listen: (f) => {
            onNews = f;
        },
    };
})();
