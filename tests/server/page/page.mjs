// The page in a headless browser, against running servers:
//     node page.mjs PROGRAM CHROMIUM
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { chromium } from 'playwright-core';
import { hostile, stream, text } from './answers.mjs';

const [program, browserPath] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const servers = [];

function serve(...options) {
    return new Promise((resolve, reject) => {
        const server = spawn(program, ['serve', '--port', '0', '-c', '4096', '-np', '4', '-q', ...options]);
        servers.push(server);
        let said = '';
        server.stdout.on('data', (data) => {
            said += data;
            const address = /^listening on (\S+)$/m.exec(said)?.[1];
            if (address) resolve(`${address}/`);
        });
        server.on('exit', (code) => reject(new Error(`the server ended with ${code}`)));
    });
}

const address = await serve('--chat-template', 'chatml');
const browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
const wide = { width: 1360, height: 860 }, phone = { width: 390, height: 780 };

// A page of its own for each test. Whatever the browser complains about fails the test, and so does
// a request to anywhere else; `allowed` are complaints that the test provokes.
async function open({ viewport = wide, theme = 'light', at = address, allowed = [], ...more } = {}) {
    const context = await browser.newContext({ viewport, colorScheme: theme, ...more });
    const page = await context.newPage();
    page.problems = [];
    const complain = (what) => { if (!allowed.some((a) => a.test(what))) page.problems.push(what); };
    page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) complain(`${m.type()}: ${m.text()}`); });
    page.on('pageerror', (e) => complain(`exception: ${e.message}`));
    page.on('request', (r) => { if (!/^(data|blob):/.test(r.url()) && !r.url().startsWith(at)) complain(`request: ${r.url()}`); });
    page.setDefaultTimeout(20000);
    await page.goto(at);
    await page.waitForFunction(() => document.getElementById('about').textContent !== '' || !document.getElementById('notice').hidden);
    return page;
}
async function close(page) {
    assert.deepEqual(page.problems, []);
    await page.context().close();
}
// In place of the server's answer.
const mock = (page, body) => page.route('**/v1/chat/completions', (r) => r.fulfill({ contentType: 'text/event-stream', body }));
async function send(page, message) {
    await page.fill('#input', message);
    await page.press('#input', 'Enter');
}
const ended = (page) => page.waitForFunction(() => document.getElementById('stop').hidden && document.querySelector('.message.assistant .actions'));
const last = (page) => page.locator('.message.assistant .body').last();

async function accessible(page, what) {
    await page.evaluate(axe);
    const found = await page.evaluate(() => axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
    const bad = found.violations.filter((v) => ['serious', 'critical'].includes(v.impact));
    assert.deepEqual(bad.map((v) => `${what}: ${v.id}: ${v.nodes.map((n) => n.html + n.failureSummary).join(' | ')}`), []);
}
async function noSideways(page) {
    const [all, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    assert.ok(all <= seen, `${all} wide in ${seen}`);
}

const tests = {
    async 'policy: nothing but the page itself runs'() {
        const reply = await fetch(address);
        const policy = reply.headers.get('content-security-policy');
        assert.match(policy, /^default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'; connect-src 'self';/);
        assert.match(policy, /frame-ancestors 'none'/);
        assert.doesNotMatch(policy, /unsafe/);
        assert.equal(reply.headers.get('x-content-type-options'), 'nosniff');
        assert.doesNotMatch(await reply.text(), / (src|href)="(https?:)?\/\/| on[a-z]+="| style="/);
        const page = await open({ allowed: [/Content Security Policy/] });
        await page.evaluate(() => {
            const script = document.createElement('script');
            script.textContent = 'window.hit = 1';
            document.body.append(script);
            document.body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="window.hit = 2">');
            fetch('http://127.0.0.1:9/').catch(() => {});
        });
        await page.waitForTimeout(200);
        assert.equal(await page.evaluate(() => window.hit), undefined);
        page.problems = page.problems.filter((p) => !p.startsWith('request: http://127.0.0.1:9/'));
        await close(page);
    },

    async 'message: streamed, shown, kept'() {
        const page = await open();
        await page.click('#settings-open');
        await page.fill('#set-max_tokens', '900');
        await page.keyboard.press('Escape');
        await page.evaluate(() => { /* seen from within the page: from here it may be over too soon */
            window.lengths = new Set();
            new MutationObserver(() => window.lengths.add(document.body.textContent.length))
                .observe(document.body, { subtree: true, childList: true, characterData: true });
        });
        await send(page, 'Tell me a story');
        await ended(page);
        const steps = await page.evaluate(() => window.lengths.size);
        assert.ok(steps >= 10, `the text grew in ${steps} steps`);
        const answer = await last(page).textContent();
        assert.ok(answer.length > 50);
        assert.match(await page.textContent('.message.assistant .figure'), /^\d+ tokens · [\d.]+\/s/);
        assert.match(await page.textContent('#used'), /^\d+ of 1024 tokens of context$/);
        await page.reload();
        assert.equal(await last(page).textContent(), answer);
        assert.equal(await page.textContent('.message.user .body'), 'Tell me a story');
        await close(page);
    },

    async 'stop: the text stays, the server stops'() {
        const page = await open();
        await send(page, 'Tell me a story');
        await page.waitForFunction(() => document.querySelector('.message.assistant .body')?.textContent.length > 20);
        await page.click('#stop');
        await ended(page);
        assert.match(await page.textContent('.message.assistant .figure'), /stopped/);
        assert.ok((await last(page).textContent()).length > 20);
        for (let i = 0; ; i++) {
            const slots = await (await fetch(`${address}slots`)).json();
            if (slots.every((s) => !s.is_processing)) break;
            assert.ok(i < 100, 'a slot is still busy');
            await page.waitForTimeout(50);
        }
        await send(page, 'Again'); // Escape does the same
        await page.waitForFunction(() => document.querySelectorAll('.message.assistant').length === 2);
        await page.keyboard.press('Escape');
        await ended(page);
        assert.match(await page.locator('.figure').last().textContent(), /stopped/);
        await close(page);
    },

    async 'regenerate and edit'() {
        const page = await open(), sent = [];
        page.on('request', (r) => { if (r.method() === 'POST') sent.push(JSON.parse(r.postData()).messages.map((m) => m.content)); });
        await mock(page, stream(['one']));
        await send(page, 'first');
        await ended(page);
        await mock(page, stream(['two']));
        await page.click('text=Regenerate');
        await ended(page);
        assert.equal(await last(page).textContent(), 'two');
        await send(page, 'second');
        await page.waitForFunction(() => document.querySelectorAll('.message').length === 4);
        await ended(page);
        await page.locator('text=Edit').first().click();
        await page.fill('.editor textarea', 'changed');
        await page.press('.editor textarea', 'Enter');
        await page.waitForFunction(() => document.querySelectorAll('.message').length === 2);
        await ended(page);
        assert.deepEqual(sent, [['first'], ['first'], ['first', 'two', 'second'], ['changed']]);
        await page.click('text=Edit');
        await page.keyboard.press('Escape');
        assert.equal(await page.textContent('.message.user .body'), 'changed');
        await close(page);
    },

    async 'conversations: new, chosen, deleted, exported, imported'() {
        const page = await open({ acceptDownloads: true });
        await mock(page, stream(['fine']));
        for (const name of ['alpha', 'beta']) {
            await page.keyboard.press('Control+Shift+O');
            await send(page, name);
            await ended(page);
        }
        assert.deepEqual(await page.locator('.open').allTextContents(), ['beta', 'alpha']);
        await page.click('.open:text("alpha")');
        assert.equal(await page.textContent('.message.user .body'), 'alpha');
        const [download] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
        const file = await download.path();
        page.on('dialog', (d) => d.accept());
        await page.click('[aria-label="Delete alpha"]');
        assert.deepEqual(await page.locator('.open').allTextContents(), ['beta']);
        await page.setInputFiles('#file', file);
        await page.waitForFunction(() => document.querySelectorAll('.open').length === 2);
        await page.reload();
        assert.deepEqual(await page.locator('.open').allTextContents(), ['beta', 'alpha']);
        await page.setInputFiles('#file', { name: 'x.json', mimeType: 'application/json', buffer: Buffer.from('[1') });
        await page.waitForSelector('#notice:visible');
        await close(page);
    },

    async 'settings: sent, and still there after a reload'() {
        const page = await open();
        await page.click('#settings-open');
        await page.fill('#set-system', 'Be brief.');
        await page.fill('#set-temperature', '0');
        await page.fill('#set-max_tokens', '7');
        await page.fill('#set-top_p', '3'); // out of range: not sent
        await page.check('input[value=dark]', { force: true });
        await page.click('text=Done');
        assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
        await page.reload();
        assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
        const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), send(page, 'Hello')]);
        const body = JSON.parse(request.postData());
        assert.deepEqual(body.messages[0], { role: 'system', content: 'Be brief.' });
        assert.equal(body.temperature, 0);
        assert.equal(body.max_tokens, 7);
        assert.equal(body.top_p, undefined);
        await ended(page);
        assert.match(await page.textContent('.message.assistant .figure'), /^7 tokens .*cut off/);
        await page.click('#settings-open');
        assert.equal(await page.inputValue('#set-system'), 'Be brief.');
        await page.click('#settings-reset');
        assert.equal(await page.inputValue('#set-system'), '');
        await close(page);
    },

    async 'neurons: drawn while tokens come, and only asked for when shown'() {
        const page = await open();
        const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), send(page, 'Hello')]);
        assert.equal(JSON.parse(request.postData()).neurons, true);
        await page.waitForSelector('#canvas:visible');
        await page.waitForTimeout(300);
        await page.keyboard.press('Escape');
        await ended(page);
        const colours = await page.evaluate(() => {
            const c = document.getElementById('canvas');
            const data = c.getContext('2d').getImageData(30, 0, c.width - 30, c.height).data;
            const all = new Set();
            for (let i = 0; i < data.length; i += 4) all.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
            return all.size;
        });
        assert.ok(colours > 10, `${colours} colours`);
        await page.click('#numbers summary');
        await page.waitForFunction(() => document.querySelectorAll('#rows tr').length === 6);
        assert.match(await page.textContent('#figure-ffn'), /^\d+(\.\d)?%$/);
        assert.match(await page.getAttribute('#canvas', 'aria-label'), /^Active neurons per layer: between/);
        await page.hover('#canvas', { position: { x: 200, y: 10 } });
        assert.match(await page.textContent('#hint'), /^Layer 0, neurons \d+–\d+: active/);
        await accessible(page, 'neurons');
        await page.click('#neurons-close');
        await page.keyboard.press('Control+Shift+O'); // however long the first answer was, there is room
        const [second] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), send(page, 'Hello')]);
        assert.equal(JSON.parse(second.postData()).neurons, undefined);
        await page.keyboard.press('Escape');
        await close(page);
    },

    async 'neurons: experts, a hot prefix, dense models'() {
        const layer = (kind, more) => ({ kind, units: 64, hot: 0, attention: 'cpu', ...(kind !== 'dense' && { active: 6, hot_active: 0, levels: Array.from({ length: 128 }, (_, i) => (i === 64 ? 255 : 0)) }), ...more });
        const event = (layers) => `event: powerinfer\ndata: ${JSON.stringify({ index: 0, steps: 1, tokens: 1, weight_share: 0.5, ffn_share: 0.1, layers })}\n\n`;
        const cases = [
            [[layer('experts')], /experts/, true],
            [[layer('neurons', { hot: 32, hot_active: 8 })], /hot prefix, is on the GPU/, true],
            [[layer('dense')], /runs dense/, false],
        ];
        for (const [layers, words, drawn] of cases) {
            const page = await open({ allowed: [/willReadFrequently/] });
            await mock(page, event(layers) + stream(['x']));
            await send(page, 'Hello');
            await ended(page);
            assert.match(await page.textContent('#kind'), words);
            assert.equal(await page.isVisible('#canvas'), drawn);
            await page.waitForTimeout(100);
            if (drawn) { // the unit that fired is in the middle
                const cell = (x) => page.evaluate((at) => {
                    const c = document.getElementById('canvas'), w = c.width - 24;
                    return [...c.getContext('2d').getImageData(24 + Math.round(w * at), 3, 1, 1).data].join();
                }, x);
                assert.notEqual(await cell(0.503), await cell(0.9));
                if (layers[0].hot) assert.notEqual(await cell(0.2), await cell(0.9));
            }
            await close(page);
        }
    },

    async 'hostile answers are text'() {
        const page = await open();
        await mock(page, stream([hostile]));
        await send(page, hostile);
        await ended(page);
        await page.waitForTimeout(200);
        const seen = await page.evaluate(() => ({
            hit: window.hit,
            made: document.querySelectorAll('#messages :is(script, img, iframe, svg, object, form, style, link, base)').length,
            handlers: [...document.querySelectorAll('#messages *')].flatMap((e) => e.getAttributeNames()).filter((n) => n.startsWith('on') || n === 'style'),
            links: [...document.querySelectorAll('#messages a')].map((a) => [new URL(a.href).protocol, a.rel, a.target].join()),
        }));
        assert.equal(seen.hit, undefined);
        assert.equal(seen.made, 0);
        assert.deepEqual(seen.handlers, []);
        assert.ok(seen.links.length > 0);
        for (const link of seen.links) assert.match(link, /^https?:,noopener noreferrer,_blank$/);
        // The same out of what the browser keeps.
        await page.evaluate((bad) => localStorage.setItem('powerinfer.conversations', JSON.stringify([{ id: '"><img onerror=hit=1>', title: bad, messages: [{ role: 'assistant', content: bad, error: bad, figure: bad, reasoning: bad }, { role: 'system', content: 'x' }, null, 7] }, 'x'])), hostile);
        await page.reload();
        await page.waitForTimeout(200);
        assert.equal(await page.evaluate(() => window.hit), undefined);
        assert.equal(await page.locator('#messages :is(img, script, iframe)').count(), 0);
        await close(page);
    },

    async 'markdown'() {
        const page = await open();
        await mock(page, stream([text.slice(0, 40), text.slice(40)], 'Thoughts'));
        await send(page, 'Hello');
        await ended(page);
        const has = (selector, content) => assert.doesNotReject(page.waitForSelector(`.message.assistant ${selector}:text-is("${content}")`, { timeout: 3000 }));
        await has('h4', 'Title');
        await has('strong', 'bold');
        await has('em', 'italic');
        await has('code', 'a * b');
        await has('li li', 'nested');
        await has('td', '22');
        await has('blockquote p', 'quoted');
        await page.click('.reasoning summary');
        await has('.reasoning div', 'Thoughts');
        assert.equal(await page.textContent('.block pre'), 'if (a < b)\n    *p = 1;');
        assert.equal(await page.textContent('.block-head span'), 'c');
        assert.equal(await page.locator('.body em').count(), 1); // snake_case_name and 2 * 3 * 4 are none
        await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
        await page.click('.block button');
        assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'if (a < b)\n    *p = 1;');
        // Marks without an end cost no more than their length.
        const before = Date.now();
        await page.evaluate(() => { for (const mark of ['*a ', '**a ', '`a ', '[a](', '_a ', '~~a ', '> ', '- ', '1. ', '|', '\n']) markdown(mark.repeat(3000)); });
        assert.ok(Date.now() - before < 10000);
        await close(page);
    },

    async 'an API key is asked for'() {
        const at = await serve('--chat-template', 'chatml', '--api-key', 'secret');
        const page = await open({ at, allowed: [/401/] });
        await page.waitForSelector('#settings[open]');
        assert.match(await page.textContent('#notice'), /API key/);
        await page.fill('#set-key', 'secret');
        await page.click('text=Done');
        await page.waitForFunction(() => document.getElementById('notice').hidden);
        await send(page, 'Hello');
        await page.waitForFunction(() => document.querySelector('.message.assistant .body')?.textContent.length > 5);
        await page.keyboard.press('Escape');
        await ended(page);
        await close(page);
    },

    async 'a model without a template continues the text'() {
        const plain = 'no-template.gguf';
        const copy = ['quantize', '-q', join(dirname(program), '../models/novella-7m.q8_0.powerinfer.gguf')];
        assert.equal(spawnSync(program, [...copy, plain, 'COPY', '--chat-template-file', '/dev/null']).status, 0);
        const at = await serve('-m', plain);
        const page = await open({ at });
        assert.match(await page.textContent('#about'), /no chat template/);
        const [request] = await Promise.all([page.waitForRequest('**/v1/completions'), send(page, 'It was a dark')]);
        assert.equal(JSON.parse(request.postData()).prompt, 'It was a dark');
        await page.waitForFunction(() => document.querySelector('.message.assistant .body')?.textContent.length > 5);
        await page.keyboard.press('Escape');
        await ended(page);
        await close(page);
    },

    async 'failures are told'() {
        const page = await open({ allowed: [/Failed to load resource/] });
        await page.route('**/v1/chat/completions', (r) => r.abort());
        await send(page, 'Hello');
        await page.waitForSelector('.failed:text("The connection to the server was lost.")');
        await page.unroute('**/v1/chat/completions');
        await page.route('**/v1/chat/completions', (r) => r.fulfill({ status: 503, json: { error: { code: 503, message: 'too many requests wait', type: 'x' } } }));
        await page.click('text=Regenerate');
        await page.waitForSelector('.failed:text("The server is busy: too many requests wait")');
        await send(page, 'word '.repeat(3000)); // a real refusal
        await page.unroute('**/v1/chat/completions');
        await ended(page);
        await page.locator('text=Regenerate').click();
        await page.waitForSelector('.failed:text("more than the context")');
        await close(page);
        const without = await serve('--no-webui');
        assert.equal((await fetch(without)).status, 404);
    },

    async 'keyboard'() {
        const page = await open();
        await mock(page, stream(['fine']));
        assert.equal(await page.evaluate(() => {
            const first = document.querySelector('a, button, input, textarea, [tabindex]');
            first.focus();
            return first.textContent + first.getBoundingClientRect().top;
        }), 'Skip to the message field8');
        await page.keyboard.press('/');
        assert.equal(await page.evaluate(() => document.activeElement.id), 'input');
        await page.keyboard.type('two');
        await page.keyboard.press('Shift+Enter');
        await page.keyboard.type('lines');
        await page.keyboard.press('Enter');
        await ended(page);
        assert.equal(await page.textContent('.message.user .body'), 'two\nlines');
        assert.equal(await page.textContent('#live'), 'The answer is complete.');
        await page.keyboard.press('Control+Shift+O');
        assert.equal(await page.isVisible('#empty'), true);
        await close(page);
    },

    async 'accessible and within the screen, in both themes and sizes'() {
        for (const theme of ['light', 'dark']) {
            for (const viewport of [wide, { width: 820, height: 1000 }, phone]) {
                const page = await open({ viewport, theme }), what = `${theme} ${viewport.width}`;
                await mock(page, stream([`${text}\n\n${'long'.repeat(200)}\n\n\`\`\`\n${'wide '.repeat(100)}\n\`\`\`\n\n|${'cell|'.repeat(30)}\n|${'-|'.repeat(30)}\n`], 'Thoughts'));
                await accessible(page, `${what}, empty`);
                await send(page, `Hello ${'x'.repeat(300)}`);
                await ended(page);
                await accessible(page, `${what}, conversation`);
                await noSideways(page);
                if (viewport !== wide) {
                    if (viewport === phone) await page.click('#side-open');
                    await accessible(page, `${what}, list`);
                    if (viewport === phone) await page.click('#side-close');
                    await page.click('#neurons-open');
                    await accessible(page, `${what}, neurons`);
                    await noSideways(page);
                }
                await page.click('#settings-open');
                await accessible(page, `${what}, settings`);
                await page.keyboard.press('Escape');
                await close(page);
            }
        }
    },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
    try {
        await test();
        console.log(`ok      ${name}`);
    } catch (e) {
        failed++;
        console.log(`FAILED  ${name}: ${e.stack}`);
    }
}
await browser.close();
for (const server of servers) {
    server.removeAllListeners('exit');
    server.kill();
}
console.log(`${Object.keys(tests).length - failed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
