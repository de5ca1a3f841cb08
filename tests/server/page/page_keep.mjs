// Data that the browser keeps: conversations, branches, answers in progress, in one tab and in two.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { close, ended, eventually, has, last, mock, open, ready, reload, send, stage, texts, titles } from './page_browser.mjs';
import { stream } from './answers.mjs';

const shows = (page, expected) => eventually(async () => assert.deepEqual(await texts(page), expected));
const lists = (page, expected) => eventually(async () => assert.deepEqual(await titles(page), expected));

// A question and its answer on the stage.
async function exchange(page, question, answer) {
    await send(page, question);
    const call = await stage.next();
    call.write(answer);
    call.finish();
    await has(page, '.message.assistant .body p', answer);
    await ended(page);
    return call;
}

export const keep = {
    async 'regenerate and edit make branches'() {
        const page = await open({ at: stage.at });
        await exchange(page, 'first', 'one');
        await page.click('[data-action=again]');
        const again = await stage.next();
        assert.deepEqual(again.messages.map((m) => m.content), ['first']);
        again.write('two');
        again.finish();
        await ended(page);
        await shows(page, ['first', 'two']);
        assert.equal(await page.textContent('.assistant .branches span'), '2/2');
        await exchange(page, 'second', 'three');
        await page.locator('.message.user').first().hover();
        await page.locator('[data-action=edit]').first().click();
        await page.fill('.editor textarea', 'changed');
        await page.press('.editor textarea', 'Enter');
        const edited = await stage.next();
        assert.deepEqual(edited.messages.map((m) => m.content), ['changed']);
        edited.write('four');
        edited.finish();
        await ended(page);
        await shows(page, ['changed', 'four']);
        assert.equal(await page.textContent('.user .branches span'), '2/2');
        // Back to the first branch: it is complete, and a new message follows it.
        await page.click('.user .branches [aria-label="Previous version"]');
        await shows(page, ['first', 'two', 'second', 'three']);
        await page.locator('.assistant .branches [aria-label="Previous version"]').click();
        await shows(page, ['first', 'one']);
        assert.equal((await exchange(page, 'third', 'five')).messages.map((m) => m.content).join(), 'first,one,third');
        await reload(page);
        await shows(page, ['first', 'one', 'third', 'five']);
        await page.click('.assistant .branches [aria-label="Next version"]');
        await shows(page, ['first', 'two', 'second', 'three']);
        assert.equal(await page.evaluate(() => document.activeElement.ariaLabel), 'Previous version'); // the focus stays at the switch
        await page.locator('[data-action=edit]').first().click();
        await page.keyboard.press('Escape');
        await shows(page, ['first', 'two', 'second', 'three']);
        await close(page);
    },

    async 'a reload in the middle of an answer keeps it, and Continue goes on'() {
        const page = await open({ at: stage.at });
        await send(page, 'Tell');
        const call = await stage.next();
        call.write('', { reasoning_content: 'Hm.' });
        for (const piece of ['Once ', 'upon ', 'a ']) call.write(piece);
        await has(page, '.assistant > .body p', 'Once upon a ');
        await page.reload();
        await ready(page);
        await eventually(() => assert.ok(call.left)); // the old page's request ended
        await page.waitForSelector('.failed:text("page was closed")');
        assert.equal(await last(page).textContent(), 'Once upon a');
        await page.click('text=Continue');
        const more = await stage.next();
        assert.deepEqual(more.messages, [{ role: 'user', content: 'Tell' }, { role: 'assistant', content: 'Once upon a ', reasoning_content: 'Hm.' }]);
        more.write('time.');
        more.finish();
        await has(page, '.assistant > .body p', 'Once upon a time.');
        await ended(page);
        assert.equal(await page.locator('.failed:visible').count(), 0);
        await reload(page);
        await shows(page, ['Tell', 'Once upon a time.']);
        assert.equal(await page.locator('text=Continue').count(), 0);
        await close(page);
    },

    async 'a stopped answer of the real server is continued'() {
        const page = await open();
        await send(page, 'Tell me a story');
        await page.waitForFunction(() => document.querySelector('.message.assistant > .body')?.textContent.length > 20);
        await page.click('#stop');
        await ended(page);
        const before = await page.evaluate(() => lastMessage().content);
        const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), page.click('text=Continue')]);
        assert.equal(request.postDataJSON().messages.at(-1).content, before);
        await page.waitForFunction((n) => lastMessage().content.length > n + 20, before.length);
        await page.keyboard.press('Escape');
        await ended(page);
        assert.ok((await page.evaluate(() => lastMessage().content)).startsWith(before));
        assert.equal(await page.locator('.message').count(), 2);
        await close(page);
    },

    async 'New during an answer: it goes on'() {
        const page = await open({ at: stage.at });
        await send(page, 'slow');
        const slow = await stage.next();
        slow.write('begun ');
        await has(page, '.assistant > .body p', 'begun ');
        await page.click('#new');
        await page.waitForSelector('#empty:visible');
        await page.waitForSelector('.badge.busy');
        await exchange(page, 'quick', 'done'); // in the meantime
        assert.equal(slow.left, false);
        slow.write('and finished');
        slow.finish();
        await page.waitForSelector('.badge:not(.busy)');
        await page.click('.open:has-text("slow")');
        await shows(page, ['slow', 'begun and finished']);
        assert.equal(await page.locator('.badge').count(), 0);
        await page.goBack();
        await shows(page, ['quick', 'done']);
        await close(page);
    },

    async 'tabs: different conversations at the same time'() {
        const a = await open({ at: stage.at }), b = await open({ at: stage.at, context: a.context() });
        await send(a, 'from a');
        const callA = await stage.next();
        await send(b, 'from b');
        const callB = await stage.next();
        callA.write('to a');
        callB.write('to b');
        callA.finish();
        callB.finish();
        await ended(a);
        await ended(b);
        for (const page of [a, b]) await lists(page, ['from b', 'from a']);
        await a.bringToFront(); // a page in the background draws a frame per second
        await reload(a);
        await lists(a, ['from b', 'from a']);
        await shows(a, ['from a', 'to a']);
        await a.click('.open:has-text("from b")');
        await shows(a, ['from b', 'to b']);
        // The other tab, which shows the conversation, sees a deletion.
        await a.locator('.list li.current').hover();
        await a.click('[aria-label="Delete from b"]');
        await lists(b, ['from a']);
        await b.waitForSelector('#empty:visible');
        await close(a, b);
    },

    async 'tabs: the same conversation'() {
        const a = await open({ at: stage.at });
        await exchange(a, 'first', 'one');
        const b = await open({ at: stage.at, context: a.context(), hash: new URL(a.url()).hash });
        await shows(b, ['first', 'one']);
        await send(a, 'second');
        const call = await stage.next();
        call.write('tw');
        await shows(b, ['first', 'one', 'second', 'tw']); // while the answer is written
        await b.waitForTimeout(2500); // longer than b waits for a sign of the other tab
        assert.equal(await b.isVisible('#stop'), true);
        call.write('o');
        await shows(b, ['first', 'one', 'second', 'two']);
        await b.click('#stop');
        await eventually(() => assert.ok(call.left));
        await ended(a);
        await shows(a, ['first', 'one', 'second', 'two']);
        await ended(b);
        assert.equal((await exchange(b, 'third', 'three')).messages.length, 5);
        await shows(a, ['first', 'one', 'second', 'two', 'third', 'three']);
        // Both continue from the same message: two branches, none is lost.
        await send(a, 'from a');
        const callA = await stage.next();
        await b.evaluate(() => { sendMessage('from b', [], shown.path.at(-3).message.id, () => {}); });
        const callB = await stage.next();
        for (const [c, text] of [[callA, 'to a'], [callB, 'to b']]) {
            c.write(text);
            c.finish();
        }
        await ended(a);
        await ended(b);
        await a.bringToFront();
        await reload(a);
        const kept = await a.evaluate(() => [...shown.messages.values()].map((m) => m.content));
        for (const text of ['from a', 'to a', 'from b', 'to b']) assert.ok(kept.includes(text), text);
        // The tab that writes an answer is closed: the other one can continue it.
        await send(a, 'fourth');
        (await stage.next()).write('cut');
        await eventually(async () => assert.equal((await texts(b)).at(-1), 'cut'));
        await a.close();
        await b.waitForSelector('text=Continue');
        await close(b);
    },

    async 'tabs: settings'() {
        const a = await open(), b = await open({ context: a.context() });
        await a.click('#settings-open');
        await a.fill('#set-temperature', '0.3');
        await a.keyboard.press('Escape');
        await b.waitForFunction(() => settings.temperature === 0.3);
        await b.click('#settings-open');
        await b.check('input[value=dark]', { force: true });
        await b.keyboard.press('Escape');
        await a.waitForFunction(() => document.documentElement.dataset.theme === 'dark');
        assert.equal(await a.evaluate(() => settings.temperature), 0.3);
        await close(a, b);
    },

    async 'conversations: new, renamed, deleted, undone, exported, imported'() {
        const page = await open({ acceptDownloads: true });
        await mock(page, stream(['fine']));
        for (const name of ['alpha', 'beta']) {
            await page.keyboard.press('Control+Shift+O');
            await page.waitForSelector('#empty:visible');
            await send(page, name);
            await ended(page);
        }
        await lists(page, ['beta', 'alpha']);
        assert.deepEqual(await page.locator('#list h3').allTextContents(), ['Today']);
        await page.click('.open:has-text("alpha")');
        await shows(page, ['alpha', 'fine']);
        await page.click('[aria-label="Rename alpha"]');
        await page.keyboard.type('gamma');
        await page.keyboard.press('Enter');
        await lists(page, ['beta', 'gamma']);
        assert.equal(await page.textContent('#title'), 'gamma');
        await page.keyboard.press('F2');
        await page.waitForSelector('.rename:focus');
        await page.keyboard.type('not this');
        await page.keyboard.press('Escape');
        await lists(page, ['beta', 'gamma']);
        const [download] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
        const file = await download.path();
        assert.equal(JSON.parse(readFileSync(file, 'utf8')).conversations.length, 2);
        await page.click('[aria-label="Delete gamma"]');
        await lists(page, ['beta']);
        await page.waitForSelector('#empty:visible');
        await page.keyboard.press('Control+z');
        await shows(page, ['alpha', 'fine']);
        await lists(page, ['beta', 'gamma']);
        await page.click('[aria-label="Delete gamma"]');
        await lists(page, ['beta']);
        await page.setInputFiles('#file', file);
        await lists(page, ['beta', 'gamma']);
        await reload(page);
        await lists(page, ['beta', 'gamma']);
        await page.click('.open:has-text("gamma")');
        await shows(page, ['alpha', 'fine']);
        await page.setInputFiles('#file', { name: 'x.json', mimeType: 'application/json', buffer: Buffer.from('[1') });
        await page.waitForSelector('#notice:visible');
        await close(page);
    },

    async 'conversations of earlier versions are taken over'() {
        const page = await open();
        const days = 24 * 3600 * 1000;
        await page.evaluate(() => localStorage.setItem('powerinfer.conversations', JSON.stringify([
            { id: 'aaaa', title: 'newer', messages: [{ role: 'user', content: 'q', reasoning: '', figure: '', error: '' },
                { role: 'assistant', content: 'a', reasoning: 'r', figure: '12 tokens · 3.5/s · stopped', error: '' }] },
            { id: 'bbbb', title: 'older', messages: [{ role: 'user', content: 'old', reasoning: '', figure: '', error: '' }] }])));
        await reload(page);
        await lists(page, ['newer', 'older']);
        assert.equal(await page.evaluate(() => localStorage.getItem('powerinfer.conversations')), null);
        await page.click('.open:has-text("newer")');
        await shows(page, ['q', 'a']);
        assert.equal(await page.textContent('.assistant .figure'), '12 tokens · 3.5/s');
        // Groups of the list follow the dates.
        await page.evaluate((time) => storage.put({ ...conversations.get('bbbb'), updated: time }), Date.now() - 3 * days);
        await reload(page);
        await eventually(async () => assert.deepEqual(await page.locator('#list h3').allTextContents(), ['Today', 'Previous 7 days']));
        await close(page);
    },

    async 'search finds titles and messages'() {
        const page = await open();
        await mock(page, stream(['An answer about Ferrets and more']));
        for (const name of ['alpha', 'beta']) {
            await page.click('#new');
            await send(page, name);
            await ended(page);
            await mock(page, stream(['Another one']));
        }
        await page.keyboard.press('Control+k');
        await page.keyboard.type('ferret');
        await eventually(async () => assert.deepEqual(await titles(page), ['alpha']));
        assert.equal(await page.textContent('.snippet mark'), 'Ferret');
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('Enter');
        await shows(page, ['alpha', 'An answer about Ferrets and more']);
        assert.equal(await page.locator('.message.found').count(), 1);
        await page.fill('#search', 'BETA');
        await lists(page, ['beta']);
        await page.fill('#search', 'absent');
        await page.waitForSelector('text=Nothing found.');
        await page.press('#search', 'Escape');
        await lists(page, ['beta', 'alpha']);
        await close(page);
    },
};
