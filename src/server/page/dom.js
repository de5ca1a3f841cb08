'use strict';
/* dom.js: small helpers that all parts of the page use. Text of models and files only becomes text
 * nodes; no part of the page parses it as HTML. */
const $ = (id) => document.getElementById(id);

const make = (name, properties = {}, ...children) => {
    const e = Object.assign(document.createElement(name), properties);
    e.append(...children);
    return e;
};

/* An icon from the sprite at the top of page.html. */
function icon(name) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
    svg.setAttribute('viewBox', '0 0 16 16');
    svg.setAttribute('aria-hidden', 'true');
    use.setAttribute('href', `#icon-${name}`);
    svg.append(use);
    return svg;
}

const iconButton = (name, label, data) => {
    const b = make('button', { type: 'button', className: 'icon small', title: label, ariaLabel: label }, icon(name));
    Object.assign(b.dataset, data);
    return b;
};

const newId = () =>
    [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, '0')).join('');

const isNarrow = () => matchMedia('(max-width: 767px)').matches;
const hasTouch = () => matchMedia('(pointer: coarse)').matches;

/* Shows an error above the message field. */
function notice(text = '') {
    $('notice').textContent = text;
    $('notice').hidden = !text;
}

/* Shows what just happened, with an undo button. The message disappears after some seconds, but not
 * while the pointer or the focus is on it. */
let toastTimer = 0;
function toast(text, label = '', action = null) {
    const button = $('toast-action');
    $('toast-text').textContent = text;
    button.textContent = label;
    button.hidden = !action;
    button.onclick = () => {
        $('toast').hidden = true;
        action();
    };
    $('toast').hidden = false;
    const hide = () => {
        if ($('toast').matches(':hover, :focus-within')) toastTimer = setTimeout(hide, 2000);
        else $('toast').hidden = true;
    };
    clearTimeout(toastTimer);
    toastTimer = setTimeout(hide, action ? 9000 : 5000);
}

const announce = (text) => {
    $('live').textContent = text;
};

async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        /* without a secure address there is no clipboard, but a selection can be copied */
        const area = make('textarea', { value: text, className: 'hidden' });
        document.body.append(area);
        area.select();
        document.execCommand('copy');
        area.remove();
    }
    announce('Copied.');
}

const sizeText = (bytes) =>
    bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
