/* compose.js: the message field with its attachments. Each conversation has a draft, which the tab
 * keeps until the draft is sent. */
const input = $('input');
const attachedAtMost = 10,
    fileAtMost = 1000000,
    pastedAsFile = 6000; /* files, bytes, characters */
let attached = []; /* [{ name, text }] */

const drafts = new Map(
    (() => {
        /* conversation id, '' for a new one -> { text, files, reason } */
        try {
            return JSON.parse(sessionStorage.getItem('powerinfer.drafts')) ?? [];
        } catch {
            return [];
        }
    })(),
);
const draftKey = () => shown?.conversation.id ?? '';
function leaveDraft() {
    if (input.value || attached.length) drafts.set(draftKey(), { text: input.value, files: attached });
    else drafts.delete(draftKey());
}
function takeDraft() {
    const draft = drafts.get(draftKey());
    input.value = draft?.text ?? '';
    attached = draft?.files ?? [];
    if (server) notice(draft?.reason);
    showAttached();
}
addEventListener('pagehide', () => {
    leaveDraft();
    try {
        sessionStorage.setItem('powerinfer.drafts', JSON.stringify([...drafts]));
    } catch {
        /* too long to store */
    }
});

/* Returns a message that the server refused to the field of its conversation, with the reason. */
function restoreMessage({ content, files, reason, conversationId }) {
    const isHere = draftKey() === conversationId,
        other = drafts.get(conversationId);
    const typed = isHere ? input.value : (other?.text ?? '');
    const draft = {
        text: typed ? `${content}\n${typed}` : content,
        files: [...files, ...(isHere ? attached : (other?.files ?? []))],
        reason,
    };
    drafts.set(conversationId, draft);
    if (isHere) takeDraft();
    if (isHere) input.focus();
}

function sizeInput() {
    input.style.height = 'auto';
    input.style.height = `${input.scrollHeight}px`;
    $('send').disabled = !input.value.trim() && !attached.length;
}

function submit() {
    const text = input.value;
    if ((!text.trim() && !attached.length) || currentAnswer()) return;
    const files = attached;
    input.value = '';
    attached = [];
    drafts.delete(draftKey());
    showAttached();
    sendMessage(text, files, lastMessage()?.id ?? '', restoreMessage);
}

input.addEventListener('input', sizeInput);
input.addEventListener('keydown', (e) => {
    if (e.isComposing) return;
    if (e.key === 'Enter' && !e.shiftKey && !hasTouch()) {
        e.preventDefault();
        submit();
    } else if (e.key === 'ArrowUp' && !input.value && !currentAnswer()) {
        const last = currentPath().findLast((p) => p.message.role === 'user')?.message;
        if (last) e.preventDefault();
        if (last) edit(last);
    }
});
$('form').addEventListener('submit', (e) => {
    e.preventDefault();
    submit();
});
$('stop').addEventListener('click', () => {
    const answer = currentAnswer();
    if (answer) stopAnswer(answer);
    input.focus();
});

/* ---- attachments ----------------------------------------------------------------------------- */

function showAttached() {
    $('attached').hidden = !attached.length;
    $('attached').replaceChildren(
        ...attached.map((f, i) => {
            const remove = iconButton('close', `Remove ${f.name}`, { index: i });
            return make(
                'li',
                {},
                icon('file'),
                make('span', { className: 'name', textContent: f.name }),
                make('span', { className: 'note', textContent: sizeText(f.text.length) }),
                remove,
            );
        }),
    );
    sizeInput();
}
$('attached').addEventListener('click', (e) => {
    const button = e.target.closest('button');
    if (!button) return;
    attached.splice(Number(button.dataset.index), 1);
    showAttached();
    input.focus();
});

/* Reads the text of a file; throws a message when the file is not text. */
async function readText(file) {
    if (file.size > fileAtMost) throw new Error(`${file.name} is too large: files may have ${sizeText(fileAtMost)}.`);
    const bytes = new Uint8Array(await file.arrayBuffer());
    const encoding =
        bytes[0] === 0xff && bytes[1] === 0xfe
            ? 'utf-16le'
            : bytes[0] === 0xfe && bytes[1] === 0xff
              ? 'utf-16be'
              : 'utf-8';
    let text;
    try {
        text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    } catch {
        text = '\0';
    }
    if (text.includes('\0')) throw new Error(`${file.name} is not a text file.`);
    if (!text.trim()) throw new Error(`${file.name} is empty.`);
    return text.replace(/\r\n?/g, '\n');
}

async function attach(files) {
    notice();
    for (const file of files) {
        try {
            const text = await readText(file);
            if (attached.length >= attachedAtMost) throw new Error(`A message may have ${attachedAtMost} files.`);
            attached.push({ name: file.name || 'file.txt', text });
        } catch (e) {
            notice(e.message);
        }
    }
    showAttached();
    input.focus();
}

$('attach').addEventListener('click', () => $('attach-file').click());
$('attach-file').addEventListener('change', async () => {
    await attach([...$('attach-file').files]);
    $('attach-file').value = '';
});

input.addEventListener('paste', (e) => {
    const text = e.clipboardData.getData('text/plain');
    if (e.clipboardData.files.length && !text) {
        e.preventDefault();
        attach([...e.clipboardData.files]);
    } else if (text.length > pastedAsFile && attached.length < attachedAtMost) {
        e.preventDefault();
        const file = { name: 'pasted.txt', text: text.replace(/\r\n?/g, '\n') };
        attached.push(file);
        showAttached();
        toast('The long text was attached as a file.', 'Put it into the message', () => {
            attached = attached.filter((f) => f !== file);
            input.setRangeText(file.text, input.selectionStart, input.selectionEnd, 'end');
            showAttached();
            input.focus();
        });
    }
});

/* Files that are dragged over the page may be dropped anywhere on it. */
const hasFiles = (e) => [...(e.dataTransfer?.types ?? [])].includes('Files');
let dragDepth = 0;
function showDrop(depth) {
    dragDepth = depth;
    document.body.classList.toggle('dropping', depth > 0);
}
addEventListener('dragenter', (e) => {
    if (hasFiles(e)) showDrop(dragDepth + 1);
});
addEventListener('dragleave', (e) => {
    if (hasFiles(e)) showDrop(Math.max(0, dragDepth - 1));
});
addEventListener('dragover', (e) => {
    if (hasFiles(e)) e.preventDefault();
});
addEventListener('drop', (e) => {
    if (!hasFiles(e)) return;
    e.preventDefault();
    showDrop(0);
    attach([...e.dataTransfer.files]);
});
