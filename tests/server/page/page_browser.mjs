// Shared by the tests of the page: servers, the browser, pages, and a stage on which a test plays
// the model. The last two arguments of the command are the program and Chromium.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

export const [program, browserPath] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const servers = [];
const PATIENCE = 60000; // milliseconds of any wait: other tests may keep the machine busy

export function serve(...options) {
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

export const address = await serve('--chat-template', 'chatml');
export const browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
export const wide = { width: 1440, height: 900 }, tablet = { width: 768, height: 1000 }, phone = { width: 360, height: 740 };

export async function end() {
    await browser.close();
    for (const server of servers) {
        server.removeAllListeners('exit');
        server.kill();
    }
    staged.close();
    staged.closeAllConnections();
}

// Opens a separate page for each test. Any complaint of the browser fails the test, and so does a
// request to another address; `allowed` lists complaints that the test provokes. With `context` the
// page is another tab of the same browser.
export async function open({ viewport = wide, theme = 'light', at = address, hash = '', allowed = [], context, ...more } = {}) {
    context ??= await browser.newContext({ viewport, colorScheme: theme, ...more });
    const page = await context.newPage();
    page.problems = [];
    const complain = (what) => { if (!allowed.some((a) => a.test(what))) page.problems.push(what); };
    page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) complain(`${m.type()}: ${m.text()}`); });
    page.on('pageerror', (e) => complain(`exception: ${e.message}`));
    page.on('request', (r) => { if (!/^(data|blob):/.test(r.url()) && !r.url().startsWith(at)) complain(`request: ${r.url()}`); });
    page.setDefaultTimeout(PATIENCE);
    await page.goto(at + hash);
    await ready(page);
    return page;
}
export const ready = (page) => page.waitForSelector('body[data-ready]');
export async function reload(page) {
    await page.reload();
    await ready(page);
}
export async function close(...pages) {
    for (const page of pages) assert.deepEqual(page.problems, []);
    await pages[0].context().close();
}
// Replaces the server's answer.
export const mock = (page, body) => page.route('**/v1/chat/completions', (r) => r.fulfill({ contentType: 'text/event-stream', body }));
export async function send(page, message) {
    await page.fill('#input', message);
    await page.press('#input', 'Enter');
}
export const ended = (page) => page.waitForFunction(() => document.getElementById('stop').hidden && document.querySelector('.message.assistant [data-action=again]'), null, { polling: 30 }); // a tab in the background draws no frames
export const last = (page) => page.locator('.message.assistant > .body').last();
export const texts = (page) => page.locator('.message > .body').allTextContents();
export const titles = (page) => page.locator('.open .name').allTextContents();
export const has = (page, selector, content) => page.waitForSelector(`${selector}:text-is("${content}")`);

// Repeats until `check` does not throw.
export async function eventually(check) {
    for (const until = Date.now() + PATIENCE; ;) {
        try {
            return await check();
        } catch (e) {
            if (Date.now() > until) throw e;
        }
        await new Promise((resolve) => setTimeout(resolve, 30));
    }
}

// The server's page and properties, with a test instead of the model: next() returns the next chat
// request, with its body and functions that answer it piece by piece.
const requests = [], waiting = [];
const staged = http.createServer(async (request, response) => {
    if (request.method === 'GET') {
        const reply = await fetch(address + request.url.slice(1));
        response.writeHead(reply.status, Object.fromEntries([...reply.headers].filter(([name]) => !['connection', 'content-length', 'date'].includes(name))));
        response.end(Buffer.from(await reply.arrayBuffer()));
        return;
    }
    let body = '';
    for await (const part of request) body += part;
    const event = (data) => response.write(`data: ${JSON.stringify(data)}\n\n`);
    const begin = () => { if (!response.headersSent) response.writeHead(200, { 'Content-Type': 'text/event-stream' }); };
    const call = {
        body: JSON.parse(body), messages: JSON.parse(body).messages, left: false,
        write(content, more = {}) { begin(); event({ choices: [{ index: 0, delta: { content, ...more }, finish_reason: null }] }); },
        finish(reason = 'stop') {
            begin();
            event({ choices: [{ index: 0, delta: {}, finish_reason: reason }], timings: { prompt_n: 9, cache_n: 1, predicted_n: 20, predicted_per_second: 12.5 } });
            response.end('data: [DONE]\n\n');
        },
        fail(message) { response.end(`data: ${JSON.stringify({ error: { code: 500, message } })}\n\n`); },
        refuse(status, message, headers = {}) {
            response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
            response.end(JSON.stringify({ error: { code: status, message, type: 'x' } }));
        },
        breakOff() { response.destroy(); },
    };
    response.on('close', () => { call.left = true; });
    if (waiting.length) waiting.shift()(call);
    else requests.push(call);
});
await new Promise((resolve) => staged.listen(0, '127.0.0.1', resolve));
export const stage = {
    at: `http://127.0.0.1:${staged.address().port}/`,
    next: () => (requests.length ? Promise.resolve(requests.shift()) : new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error('no request came')), PATIENCE);
        waiting.push((call) => {
            clearTimeout(timer);
            resolve(call);
        });
    })),
    forget() { requests.length = 0; }, // requests of a failed test
};

export async function accessible(page, what) {
    await page.evaluate(axe);
    const found = await page.evaluate(() => axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
    const bad = found.violations.filter((v) => ['serious', 'critical'].includes(v.impact));
    assert.deepEqual(bad.map((v) => `${what}: ${v.id}: ${v.nodes.map((n) => n.html + n.failureSummary).join(' | ')}`), []);
}
export async function noSideways(page) {
    const [all, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    assert.ok(all <= seen, `${all} wide in ${seen}`);
}
