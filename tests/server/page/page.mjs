// The page in a headless browser, against running servers:
//     node page.mjs PROGRAM CHROMIUM [PART OF A TEST'S NAME]
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { hostile, stream, text } from './answers.mjs';
import { accessible, address, close, end, ended, eventually, has, last, mock, noSideways, open, phone, program, reload, send, serve, stage, tablet, texts, titles, wide } from './page_browser.mjs';
import { keep } from './page_keep.mjs';
import { rendering } from './page_text.mjs';

const model = join(dirname(program), '../models/novella-7m.q8_0.powerinfer.gguf');

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
        await page.fill('#set-max_tokens', '300');
        await page.keyboard.press('Escape');
        /* observed within the page: from outside it may be over too soon */
        await page.evaluate(() => {
            window.lengths = new Set();
            const length = () => document.querySelector('.message.assistant > .body')?.textContent.length;
            new MutationObserver(() => { if (length()) window.lengths.add(length()); })
                .observe(document.body, { subtree: true, childList: true, characterData: true });
        });
        await send(page, 'Tell me a story');
        await ended(page);
        const steps = await page.evaluate(() => window.lengths.size);
        assert.ok(steps >= 3, `the text grew in ${steps} steps`); // drawn at the end only: one
        const answer = await last(page).textContent();
        assert.ok(answer.length > 50);
        assert.match(await page.textContent('.message.assistant .figure'), /^\d+ tokens · [\d.]+\/s/);
        assert.match(await page.textContent('#used'), /^\d+ of 1024 tokens of context$/);
        await reload(page);
        assert.equal(await last(page).textContent(), answer);
        assert.equal(await page.textContent('.message.user > .body'), 'Tell me a story');
        assert.match(await page.textContent('#used'), /^\d+ of 1024/);
        await close(page);
    },

    async 'stop: the text stays, the server stops'() {
        const page = await open();
        await send(page, 'Tell me a story');
        await page.waitForFunction(() => document.querySelector('.message.assistant > .body')?.textContent.length > 20);
        await page.click('#stop');
        await ended(page);
        assert.match(await page.textContent('.message.assistant .figure'), /stopped/);
        assert.ok((await last(page).textContent()).length > 20);
        await eventually(async () => {
            const slots = await (await fetch(`${address}slots`)).json();
            assert.ok(slots.every((s) => !s.is_processing), 'a slot is still busy');
        });
        await send(page, 'Again'); // Escape does the same
        await page.waitForFunction(() => document.querySelectorAll('.message.assistant').length === 2);
        await page.keyboard.press('Escape');
        await ended(page);
        assert.match(await page.locator('.figure').last().textContent(), /stopped/);
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
        await reload(page);
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
        const page = await open({ allowed: [/willReadFrequently/] }); // this test reads the canvas
        const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), send(page, 'Hello')]);
        assert.equal(JSON.parse(request.postData()).neurons, true);
        await page.waitForSelector('#canvas:visible');
        await eventually(async () => {
            const colours = await page.evaluate(() => {
                const c = document.getElementById('canvas');
                const data = c.getContext('2d').getImageData(30, 0, c.width - 30, c.height).data;
                const all = new Set();
                for (let i = 0; i < data.length; i += 4) all.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
                return all.size;
            });
            assert.ok(colours > 10, `${colours} colours`);
        });
        await page.keyboard.press('Escape');
        await ended(page);
        await page.click('#numbers summary');
        await page.waitForFunction(() => document.querySelectorAll('#rows tr').length === 6);
        assert.match(await page.textContent('#figure-ffn'), /^\d+(\.\d)?%$/);
        assert.match(await page.getAttribute('#canvas', 'aria-label'), /^Active neurons per layer: between/);
        await page.hover('#canvas', { position: { x: 200, y: 10 } });
        assert.match(await page.textContent('#hint'), /^Layer 0, neurons \d+–\d+: active/);
        await accessible(page, 'neurons');
        await page.click('#neurons-close');
        await page.keyboard.press('Control+Shift+O'); // the first answer is long, but there is room
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
            if (drawn) { // the active unit is in the middle
                const cell = (x) => page.evaluate((at) => {
                    const c = document.getElementById('canvas'), w = c.width - 24;
                    return [...c.getContext('2d').getImageData(24 + Math.round(w * at), 3, 1, 1).data].join();
                }, x);
                await eventually(async () => assert.notEqual(await cell(0.503), await cell(0.9)));
                if (layers[0].hot) assert.notEqual(await cell(0.2), await cell(0.9));
            }
            await close(page);
        }
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
        await page.waitForFunction(() => document.querySelector('.message.assistant > .body')?.textContent.length > 5);
        await page.keyboard.press('Escape');
        await ended(page);
        await close(page);
    },

    async 'a model without a template continues the text'() {
        const plain = 'no-template.gguf';
        const copy = ['quantize', '-q', model];
        assert.equal(spawnSync(program, [...copy, plain, 'COPY', '--chat-template-file', '/dev/null']).status, 0);
        const at = await serve('-m', plain);
        const page = await open({ at });
        assert.match(await page.textContent('#about'), /no chat template/);
        const [request] = await Promise.all([page.waitForRequest('**/v1/completions'), send(page, 'It was a dark')]);
        assert.equal(JSON.parse(request.postData()).prompt, 'It was a dark');
        await page.waitForFunction(() => document.querySelector('.message.assistant > .body')?.textContent.length > 5);
        await page.keyboard.press('Escape');
        await ended(page);
        await close(page);
    },

    async 'several models: one is chosen, and stays chosen'() {
        writeFileSync('models.ini', ['one', 'two'].map((name) => `[${name}]\nmodel = ${model}\n`).join(''));
        const at = await serve('--models', 'models.ini', '--models-max', '1', '--chat-template', 'chatml');
        const page = await open({ at });
        assert.deepEqual(await page.$$eval('#models option', (all) => all.map((o) => o.value)), ['one', 'two']);
        assert.equal(await page.isVisible('#model'), false);
        await page.selectOption('#models', 'two');
        const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), send(page, 'Hello')]);
        assert.equal(JSON.parse(request.postData()).model, 'two');
        await ended(page);
        await page.waitForFunction(() => document.querySelector('#used').textContent.includes('tokens of context'));
        await reload(page);
        await page.waitForFunction(() => document.querySelector('#models').value === 'two');
        await close(page);
    },

    async 'failures are told, and the conversation goes on'() {
        const page = await open({ at: stage.at, allowed: [/Failed to load resource/] });
        await page.route('**/v1/chat/completions', (r) => r.abort());
        await send(page, 'Hello');
        await page.waitForSelector('.failed:text("The connection to the server was lost.")');
        await page.unroute('**/v1/chat/completions');
        await page.click('[aria-label="Try again"]'); // the same place: there is nothing to keep
        const partly = await stage.next();
        partly.write('half');
        await has(page, '.assistant > .body p', 'half');
        partly.breakOff();
        await page.waitForSelector('.failed:text("The connection to the server was lost.")');
        await page.click('text=Continue');
        const more = await stage.next();
        assert.equal(more.messages.at(-1).content, 'half');
        more.write(' whole');
        more.finish();
        await has(page, '.assistant > .body p', 'half whole');
        assert.equal(await page.locator('.branches').count(), 0);
        // A full queue: the page retries without the user.
        await send(page, 'More');
        (await stage.next()).refuse(503, 'too many requests wait', { 'Retry-After': '1' });
        await page.waitForSelector('.failed:text("Trying again in 1 s")');
        const retried = await stage.next();
        retried.write('fine');
        retried.finish();
        await ended(page);
        assert.equal(await page.locator('.failed:visible').count(), 0);
        await send(page, 'Again');
        (await stage.next()).refuse(503, 'too many requests wait', { 'Retry-After': '20' });
        await page.waitForSelector('.failed:text("Trying again in 20 s")');
        await page.keyboard.press('Escape'); // instead of waiting
        await ended(page);
        // An error within a stream.
        await send(page, 'And');
        const broken = await stage.next();
        broken.write('some');
        broken.fail('the model is gone');
        await page.waitForSelector('.failed:text("the model is gone")');
        await page.click('text=Continue');
        const cut = await stage.next();
        cut.write('thing');
        cut.finish('length');
        await page.waitForSelector('.figure:text("cut off: the limit of tokens is reached")');
        assert.equal(await last(page).textContent(), 'something');
        await send(page, 'Other');
        (await stage.next()).refuse(500, 'out of memory');
        await page.waitForSelector('.failed:text("Out of memory")');
        await reload(page);
        await page.waitForSelector('.failed:text("Out of memory")');
        await close(page);
        const without = await serve('--no-webui');
        assert.equal((await fetch(without)).status, 404);
    },

    async 'a message that the server refuses returns to where it was written'() {
        const page = await open({ allowed: [/Failed to load resource/] });
        const long = 'word '.repeat(3000);
        await page.setInputFiles('#attach-file', { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('kept') });
        await send(page, long); // a new conversation: no trace of it remains
        await page.waitForSelector('#notice:text("more than the context")');
        assert.equal(await page.inputValue('#input'), long);
        assert.equal(await page.locator('#attached li').count(), 1);
        assert.deepEqual([await titles(page), await texts(page)], [[], []]);
        await page.click('#attached button');
        await mock(page, stream(['fine']));
        await send(page, 'short');
        await ended(page);
        assert.equal(await page.isVisible('#notice'), false);
        await page.unroute('**/v1/chat/completions');
        await send(page, long);
        await page.waitForSelector('#notice:visible');
        assert.equal(await page.inputValue('#input'), long);
        assert.deepEqual(await texts(page), ['short', 'fine']);
        await reload(page);
        assert.deepEqual(await texts(page), ['short', 'fine']);
        assert.equal(await page.inputValue('#input'), long); // a draft survives a reload
        await page.fill('#input', '');
        await page.keyboard.press('ArrowUp'); // an edit
        await page.fill('.editor textarea', long);
        await page.press('.editor textarea', 'Enter');
        await page.waitForSelector('.editor .failed:text("more than the context")');
        assert.equal(await page.inputValue('.editor textarea'), long);
        await page.keyboard.press('Escape');
        assert.deepEqual(await texts(page), ['short', 'fine']);
        await mock(page, stream(['next']));
        await send(page, 'goes on');
        await eventually(async () => assert.deepEqual(await texts(page), ['short', 'fine', 'goes on', 'next']));
        await close(page);
        // The refusal comes while another conversation is shown.
        const other = await open({ at: stage.at, allowed: [/Failed to load resource/] });
        await send(other, 'first');
        const first = await stage.next();
        first.write('fine');
        first.finish();
        await ended(other);
        await send(other, 'late');
        const late = await stage.next();
        await other.click('#new');
        await other.waitForSelector('#empty:visible');
        await other.fill('#input', 'not touched');
        late.refuse(400, 'too long');
        await other.waitForFunction(() => running.size === 0);
        assert.equal(await other.inputValue('#input'), 'not touched');
        await other.click('.open:has-text("first")');
        await other.waitForSelector('#notice:text("Too long")');
        assert.equal(await other.inputValue('#input'), 'late');
        assert.deepEqual(await texts(other), ['first', 'fine']);
        await close(other);
    },

    async 'attachments: chosen, dropped, pasted'() {
        const page = await open({ at: stage.at });
        const file = (name, content) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(content) });
        await page.setInputFiles('#attach-file', [file('a.py', 'print("```")\n'), file('b.txt', 'x')]);
        await eventually(async () => assert.deepEqual(await page.locator('#attached .name').allTextContents(), ['a.py', 'b.txt']));
        await page.click('[aria-label="Remove b.txt"]');
        for (const [bad, reason] of [[file('c.bin', '\0\x01'), 'c.bin is not a text file'], [file('d.jpg', Buffer.from([0xff, 0xd8, 0xff])), 'd.jpg is not a text file'], [file('e.txt', 'x'.repeat(1000001)), 'e.txt is too large'], [file('f.txt', ' '), 'f.txt is empty']]) {
            await page.setInputFiles('#attach-file', bad);
            await page.waitForSelector(`#notice:text("${reason}")`);
        }
        await page.evaluate(() => {
            const data = new DataTransfer();
            data.items.add(new File(['dropped text'], 'drop.md'));
            for (const type of ['dragenter', 'dragover', 'drop']) {
                document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
                if (type === 'dragover' && !document.body.classList.contains('dropping')) throw new Error('no place to drop is shown');
            }
        });
        await page.waitForSelector('#attached .name:text("drop.md")');
        const paste = (text) => page.evaluate((t) => {
            const data = new DataTransfer();
            data.setData('text/plain', t);
            document.getElementById('input').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
        }, text);
        await paste('long '.repeat(2000));
        await page.waitForSelector('#attached .name:text("pasted.txt")');
        await page.click('#toast-action'); // no: into the message
        assert.equal((await page.inputValue('#input')).length, 10000);
        await page.fill('#input', 'Read');
        await page.press('#input', 'Enter');
        const call = await stage.next();
        assert.deepEqual(call.messages, [{ role: 'user', content: 'Read\n\na.py:\n````py\nprint("```")\n````\n\ndrop.md:\n```md\ndropped text\n```' }]);
        call.write('ok');
        call.finish();
        await ended(page);
        await reload(page);
        assert.deepEqual(await page.locator('.attachment span:not(.note)').allTextContents(), ['a.py', 'drop.md']);
        await page.locator('.attachment summary').last().click();
        assert.equal(await page.locator('.attachment pre').last().textContent(), 'dropped text');
        await page.locator('.message.user').hover();
        await page.click('[data-action=edit]'); // files stay with an edited message
        await page.fill('.editor textarea', 'Look');
        await page.press('.editor textarea', 'Enter');
        const edited = await stage.next();
        assert.match(edited.messages[0].content, /^Look\n\na\.py:/);
        edited.finish();
        await ended(page);
        await close(page);
    },

    async 'reasoning: folded, switched off'() {
        const page = await open({ at: stage.at });
        await send(page, 'Hello');
        const call = await stage.next();
        call.write('', { reasoning_content: 'Well' });
        await has(page, '.reasoning[open] summary', 'Thinking…');
        call.write('Yes');
        call.finish();
        await page.waitForSelector('.reasoning:not([open]) summary:text-matches("^Thought for [0-9.]+ s$")');
        await page.click('#settings-open');
        assert.equal(await page.isVisible('#thinks-row'), false); // chatml does not have this variable
        await page.check('#set-folded');
        await page.keyboard.press('Escape');
        await page.evaluate(() => {
            server.chat_template += '{{ enable_thinking }}';
            showServer();
        });
        await page.click('#settings-open');
        await page.uncheck('#set-thinks');
        await page.keyboard.press('Escape');
        await send(page, 'More');
        const second = await stage.next();
        assert.deepEqual(second.body.chat_template_kwargs, { enable_thinking: false });
        second.write('', { reasoning_content: 'Well' });
        await page.waitForSelector('.reasoning:not([open]) summary:text("Thinking…")');
        second.finish();
        await ended(page);
        await close(page);
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
        assert.equal(await page.textContent('.message.user > .body'), 'two\nlines');
        assert.equal(await page.textContent('#live'), 'The answer is complete.');
        await page.keyboard.press('ArrowUp');
        assert.equal(await page.inputValue('.editor textarea'), 'two\nlines');
        await page.keyboard.press('Escape');
        await page.keyboard.press('Control+Shift+O');
        await page.waitForSelector('#empty:visible');
        await page.evaluate(() => document.activeElement.blur());
        await page.keyboard.press('?');
        await accessible(page, 'keys');
        assert.equal(await page.isVisible('#keys'), true);
        await page.keyboard.press('Escape');
        await page.keyboard.press('Control+Shift+S');
        assert.equal(await page.isVisible('#side'), false);
        await close(page);
    },

    async 'accessible and within the screen, in both themes and sizes'() {
        for (const theme of ['light', 'dark']) {
            for (const viewport of [wide, tablet, phone]) {
                const page = await open({ viewport, theme }), what = `${theme} ${viewport.width}`;
                await mock(page, stream([`${text}\n\n${'long'.repeat(200)}\n\n\`\`\`\n${'wide '.repeat(100)}\n\`\`\`\n\n|${'cell|'.repeat(30)}\n|${'-|'.repeat(30)}\n\n- [x] task\n\n$$${'x + '.repeat(50)} y$$\n\n\`\`\`c\nint f(void) { return 1; /* c */ }\n\`\`\`\n`], 'Thoughts'));
                if (viewport === wide) await accessible(page, `${what}, empty`);
                await send(page, `Hello ${'x'.repeat(300)}`);
                await ended(page);
                await page.click('.message.assistant [data-action=again]');
                await ended(page);
                await page.setInputFiles('#attach-file', { name: `${'long'.repeat(40)}.txt`, mimeType: 'text/plain', buffer: Buffer.from('x') });
                await page.waitForSelector('#attached .name');
                await accessible(page, `${what}, conversation`);
                await noSideways(page);
                if (viewport === phone) {
                    await page.click('#side-open');
                    await accessible(page, `${what}, list`);
                    await page.click('#side-close');
                }
                if (viewport !== wide) {
                    await page.click('#neurons-open');
                    await noSideways(page);
                }
                await page.click('#settings-open');
                if (viewport !== tablet) await accessible(page, `${what}, settings`);
                await page.keyboard.press('Escape');
                await close(page);
            }
        }
    },
};

const only = process.argv[4] ?? '';
let failed = 0, passed = 0;
for (const [name, test] of Object.entries({ ...tests, ...keep, ...rendering })) {
    if (!name.includes(only)) continue;
    const before = Date.now();
    try {
        await test();
        passed++;
        console.log(`ok      ${name} (${Date.now() - before} ms)`);
    } catch (e) {
        failed++;
        console.log(`FAILED  ${name}: ${e.stack}`);
    }
    stage.forget();
}
await end();
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
