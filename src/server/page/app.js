/* app.js: panels, keys, and the start of the page. */

/* Where the window has no room for both panels, opening one closes the other; on narrow screens the
 * list covers the conversation. */
const hasRoom = () => matchMedia('(min-width: 1100px)').matches;
function showSide(on) {
    document.body.classList.toggle('no-side', !on);
    $('side-open').setAttribute('aria-expanded', on);
    $('shade').hidden = !isNarrow() || !on;
    if (on && !hasRoom() && !$('neurons').hidden) showNeurons(false);
    if (hasRoom()) storage.set('side', on);
}
function showNeurons(on) {
    const end = isAtEnd();
    $('neurons').hidden = !on;
    $('neurons-open').setAttribute('aria-expanded', on);
    if (on && !hasRoom()) showSide(false);
    if (on) picture.refresh();
    if (hasRoom()) storage.set('neurons', on);
    if (end) toEnd();
}
const toggleSide = () => showSide(document.body.classList.contains('no-side'));
$('side-open').addEventListener('click', toggleSide);
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
/* The window became narrow, for example because a phone was turned. */
addEventListener('resize', () => {
    if (!hasRoom() && !$('neurons').hidden) showSide(false);
    $('shade').hidden = !isNarrow() || document.body.classList.contains('no-side');
});

async function beginNew() {
    await openConversation(null);
    if (isNarrow()) showSide(false);
    input.focus();
}
$('new').addEventListener('click', beginNew);
$('new-narrow').addEventListener('click', beginNew);
$('skip').addEventListener('click', (e) => {
    e.preventDefault();
    input.focus();
});
$('keys-open').addEventListener('click', () => $('keys').showModal());
for (const dialog of document.querySelectorAll('dialog'))
    dialog.addEventListener('click', (e) => {
        if (e.target === dialog) dialog.close();
    });

/* Keys with Ctrl or Command. */
const commands = {
    k: () => {
        showSide(true);
        $('search').focus();
        $('search').select();
    },
    'shift+o': beginNew,
    'shift+s': toggleSide,
    'shift+e': () => showNeurons($('neurons').hidden),
    ',': () => openSettings(),
};
document.addEventListener('keydown', (e) => {
    if (document.querySelector('dialog[open]') || e.isComposing) return;
    const isTyping = /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName);
    const command =
        (e.ctrlKey || e.metaKey) && !e.altKey && commands[`${e.shiftKey ? 'shift+' : ''}${e.key.toLowerCase()}`];
    if (command) {
        e.preventDefault();
        command();
    } else if (
        e.key === 'z' &&
        (e.ctrlKey || e.metaKey) &&
        !isTyping &&
        !$('toast').hidden &&
        !$('toast-action').hidden
    ) {
        e.preventDefault();
        $('toast-action').click();
    } else if (e.key === 'Escape' && !$('shade').hidden) {
        $('shade').click();
    } else if (e.key === 'Escape' && currentAnswer()) {
        stopAnswer(currentAnswer());
    } else if (e.key === '/' && !isTyping) {
        e.preventDefault();
        input.focus();
    } else if (e.key === '?' && !isTyping) {
        $('keys').showModal();
    }
});
addEventListener('popstate', () => openConversation(location.hash.slice(1), { push: false }));

async function start() {
    showSide(!isNarrow() && storage.get('side', true));
    showNeurons(hasRoom() && storage.get('neurons', true));
    const contact = connect();
    storage.listen(hear);
    for (const c of await storage.conversations()) conversations.set(c.id, c);
    await migrate();
    await recoverAnswers();
    await openConversation(location.hash.slice(1), { push: false });
    if (!hasTouch()) input.focus();
    await contact;
    document.body.dataset.ready = ''; /* for tests */
}
start();
