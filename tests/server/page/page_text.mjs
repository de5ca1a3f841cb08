// How the page renders the text of answers: Markdown, formulas, code; and nothing in the text runs.
import assert from 'node:assert/strict';
import { close, ended, last, mock, open, reload, send } from './page_browser.mjs';
import { hostile, stream, text } from './answers.mjs';

// HTML of Markdown as the page renders it.
const html = (page, source) => page.evaluate((s) => {
    const box = document.createElement('div');
    markdown.update(box, s);
    return box.innerHTML;
}, source);

export const rendering = {
    async 'markdown'() {
        const page = await open();
        await mock(page, stream([text.slice(0, 40), text.slice(40)], 'Thoughts'));
        await send(page, 'Hello');
        await ended(page);
        const has = (selector, content) => assert.doesNotReject(page.waitForSelector(`.message.assistant ${selector}:text-is("${content}")`));
        await has('h4', 'Title');
        await has('strong', 'bold');
        await has('em', 'italic');
        await has('code', 'a * b');
        await has('li li', 'nested');
        await has('td', '22');
        await has('blockquote p', 'quoted');
        await page.click('.reasoning summary');
        await has('.reasoning p', 'Thoughts');
        assert.equal(await page.textContent('.block pre'), 'if (a < b)\n    *p = 1;');
        assert.equal(await page.textContent('.block-head span'), 'C');
        assert.equal(await page.locator('.body em').count(), 1); // snake_case_name and 2 * 3 * 4 have no emphasis
        await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
        await page.click('.block button');
        assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'if (a < b)\n    *p = 1;');
        await page.click('.message.assistant [data-action=copy]');
        assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
        await close(page);
    },

    async 'tables keep their alignment, lists their tasks'() {
        const page = await open();
        const table = await html(page, '| a | b | c | d |\n|:--|:-:|--:|---|\n| 1 | 2 | 3 | `x|y` \\| z |\n');
        assert.match(table, /<td class="center">2<\/td><td class="right">3<\/td><td><code>x\|y<\/code> \| z<\/td>/);
        await page.evaluate((s) => document.getElementById('messages').append(...markdown(s)), '|a|\n|--:|\n|1|');
        assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('#messages td')).textAlign), 'right');
        assert.equal(await html(page, '- [x] done\n- [ ] *open*\n- [x]not'),
            '<ul><li class="task"><input type="checkbox" disabled="" aria-label="Done">done</li>' +
            '<li class="task"><input type="checkbox" disabled="" aria-label="Not done"><em>open</em></li><li>[x]not</li></ul>');
        assert.deepEqual(await page.evaluate(() => markdown('- [x] a\n- [ ] b')[0].querySelectorAll('input:checked').length), 1);
        assert.equal(await html(page, '3. a\n   - b\n\n     c\n4. d'), '<ol start="3"><li>a<ul><li><p>b</p><p>c</p></li></ul></li><li>d</li></ol>');
        assert.equal(await html(page, '**a *b* c** ***d*** __e__ 2*3*4 x_y_z ~~f~~ `` a`b ``'),
            '<p><strong>a <em>b</em> c</strong> <strong><em>d</em></strong> <strong>e</strong> 2<em>3</em>4 x_y_z <s>f</s> <code>a`b</code></p>');
        assert.equal(await html(page, 'a\nb<br>c\n\n> d\n> - e'), '<p>a<br>b<br>c</p><blockquote><p>d</p><ul><li>e</li></ul></blockquote>');
        assert.equal(await html(page, 'a \\* b &lt; H<sub>2</sub>O <https://x.org/>'),
            '<p>a * b &lt; H<sub>2</sub>O <a href="https://x.org/" target="_blank" rel="noopener noreferrer">https://x.org/</a></p>');
        await close(page);
    },

    async 'streaming draws only the block that grows'() {
        const page = await open();
        const kept = await page.evaluate(() => {
            const box = document.createElement('div');
            markdown.update(box, '# a\n\nb\n\n```c\nint');
            const [heading, paragraph, block] = box.children;
            markdown.update(box, '# a\n\nb\n\n```c\nint x;\n```\n\nend');
            const same = [box.children[0] === heading, box.children[1] === paragraph, box.children[2] !== block, box.children.length];
            markdown.update(box, 'other');
            return [...same, box.innerHTML];
        });
        assert.deepEqual(kept, [true, true, true, 4, '<p>other</p>']);
        // A text that arrives in any pieces is rendered like a text at once. A generator with a
        // seed makes the texts from the marks that have a meaning.
        const differing = await page.evaluate(() => {
            const marks = ['\n', '\n', '\n\n', '- ', '  - ', '1. ', '> ', '# ', '```c\n', '```\n', '~~~\n', '|a|b|\n', '|-|:-:|\n', '| ', '$', '$$', '\\(', '\\)', '\\[', '\\]', '\\frac{1}{2}',
                '\\begin{matrix}a&b\\\\c\\end{matrix}', 'x^2', '_', '__', '*', '**', '***', '`', '``', '~~', '[', '](http://x.org)', '<b>', '</b>', '<br>', '&lt;', '\\', '[x] ', '---\n', '===\n', '    ', '\t',
                'word ', 'word ', 'two words ', 'http://a.b/c ', '"', "'", '{', '}', '/*', '#'];
            let seed = 7;
            const random = (n) => {
                seed = (seed * 1103515245 + 12345) % 2147483648;
                return Math.floor(seed / 65536) % n;
            };
            const box = document.createElement('div'), whole = document.createElement('div'), wrong = [];
            for (let n = 0; n < 600; n++) {
                let source = '';
                for (let k = random(40) + 1; k > 0; k--) {
                    source += marks[random(marks.length)];
                    if (random(4) === 0) markdown.update(box, source);
                }
                markdown.update(box, source);
                markdown.forget(whole);
                markdown.update(whole, source);
                if (box.innerHTML !== whole.innerHTML) wrong.push(source);
            }
            return wrong;
        });
        assert.deepEqual(differing, []);
        // Marks without an end cost no more than their length.
        const took = await page.evaluate(() => {
            const before = performance.now();
            for (const mark of ['*a ', '**a ', '`a ', '``a `', '[a](', '_a ', '~~a ', '> ', '- ', '1. ', '|', '\n', '$a', '$$', '\\(', '\\[', '<b>', '***', '[', '\\begin{align}\n'])
                markdown(mark.repeat(3000));
            for (const mark of ['{', '\\frac', '\\left(', '^{', '\\begin{matrix}', '\\sqrt[']) markdown(`$$${mark.repeat(1000)}$$`);
            for (const code of ['"', "'", '/*', '/', '<a ', '`', '\\', '#', '"""', '0x', '--[['])
                for (const language of ['c', 'js', 'py', 'html', 'sh', 'lua', 'css', 'yaml']) markdown(`\`\`\`\`${language}\n${code.repeat(5000)}\n\`\`\`\``);
            return performance.now() - before;
        });
        assert.ok(took < 10000, `${took} ms`);
        await close(page);
    },

    async 'formulas'() {
        const page = await open();
        const tex = async (source) => (await html(page, source)).replace(/<annotation.*?<\/annotation>/g, '').replace(/ xmlns="[^"]*"/g, '');
        const body = async (source) => /<semantics><mrow>(.*)<\/mrow><\/semantics>/.exec(await tex(`$${source}$`))[1];
        assert.equal(await body('\\frac{a}{b}'), '<mfrac><mi>a</mi><mi>b</mi></mfrac>');
        assert.equal(await body('x_1^{2}'), '<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>');
        assert.equal(await body('\\sqrt[3]{x}-\\alpha'), '<mroot><mi>x</mi><mn>3</mn></mroot><mo>−</mo><mi>α</mi>');
        assert.match(await body('\\sum_{i=1}^n i'), /^<munderover><mo movablelimits="true" largeop="true">∑<\/mo><mrow>.*<\/mrow><mi>n<\/mi><\/munderover><mi>i<\/mi>$/);
        assert.match(await body('\\int_0^\\infty'), /^<msubsup><mo[^>]*>∫<\/mo><mn>0<\/mn><mi[^>]*>∞<\/mi><\/msubsup>$/);
        assert.match(await body('\\begin{pmatrix}a&b\\\\c&d\\end{pmatrix}'), /^<mrow><mo[^>]*>\(<\/mo><mtable><mtr><mtd><mi>a<\/mi><\/mtd><mtd>.*<\/mtr><mtr>.*<mo[^>]*>\)<\/mo><\/mrow>$/);
        assert.match(await body('\\mathbb{R}\\text{ if }\\left(\\frac12\\right]'), /ℝ.*<mtext>&nbsp;if&nbsp;<\/mtext>.*stretchy="true".*<mfrac><mn>1<\/mn><mn>2<\/mn><\/mfrac>/);
        for (const [source, isDisplay] of [['\\(x\\)', false], ['$x$', false], ['\\[x\\]', true], ['$$x$$', true], ['$$\nx\n$$', true], ['\\[\nx\n\\]', true], ['\\begin{equation}x\\end{equation}', true]])
            assert.match(await tex(source), isDisplay ? /<math display="block">/ : /<math display="inline">/, source);
        // The source stays whole: as annotation, and where the page does not know a command.
        const source = '\\alpha_1 \\cdot \\{ x \\mid x \\ne 0 \\} \\\\ y';
        assert.equal(await page.evaluate((s) => markdown(`$$${s}$$`)[0].querySelector('annotation').textContent, source), source);
        assert.equal(await html(page, 'a \\(\\unknown{x}_1 * \\{y\\} *\\) b'), '<p>a <code class="tex">\\(\\unknown{x}_1 * \\{y\\} *\\)</code> b</p>');
        assert.equal(await html(page, '$$\n\\unknown\\\\\n$$'), '<div class="formula" tabindex="0" role="group" aria-label="Formula"><code class="tex">$$\n\\unknown\\\\\n$$</code></div>');
        // Money, code and shell variables are no formulas.
        for (const plain of ['It costs $5 and $10.', 'US$ 6 or $7', '$5, or US$ 6', 'from $PATH to $HOME it is', '\\$x\\$', '$ x $', 'a$'])
            assert.doesNotMatch(await html(page, plain), /<math|tex/, plain);
        assert.equal(await html(page, '`$x$`'), '<p><code>$x$</code></p>');
        // What users see has no backslash, and is drawn as a fraction: higher than a line.
        await mock(page, stream(['The sum is \\[ \\frac{a_1}{b^2} \\leq \\sqrt{x} \\] and **so** on.']));
        await send(page, 'Hello');
        await ended(page);
        const seen = await page.evaluate(() => {
            const math = document.querySelector('.message.assistant math');
            return [math.querySelector('mrow').textContent.includes('\\'), math.getBoundingClientRect().height > 35, getComputedStyle(math.querySelector('annotation')).display];
        });
        assert.deepEqual(seen, [false, true, 'none']);
        await close(page);
    },

    async 'code is highlighted'() {
        const page = await open();
        const tokens = (language, code) => page.evaluate(([l, c]) => highlight(c, l).filter((n) => n.nodeType).map((n) => `${n.className.slice(2)} ${n.textContent}`), [language, code]);
        assert.deepEqual(await tokens('c', '#include <a.h>\nint f(char *s) { /* c */ return g("\\"x", 0x1f); } // d'),
            ['meta #include <a.h>', 'type int', 'function f', 'type char', 'comment /* c */', 'keyword return', 'function g', 'string "\\"x"', 'number 0x1f', 'comment // d']);
        assert.deepEqual(await tokens('py', "@a.b\ndef f(x): # no\n    return f'''{x}''' + None"),
            ['meta @a.b', 'keyword def', 'function f', 'comment # no', 'keyword return', "string f'''{x}'''", 'constant None']);
        assert.deepEqual(await tokens('javascript', 'const a = /x"y/g.test(`b`) / 2;'), ['keyword const', 'meta /x"y/g', 'function test', 'string `b`', 'number 2']);
        assert.deepEqual(await tokens('bash', 'for f in *.c; do echo "$f" --all; done # x'),
            ['keyword for', 'keyword in', 'keyword do', 'keyword echo', 'string "$f"', 'meta --all', 'keyword done', 'comment # x']);
        assert.deepEqual(await tokens('json', '{"a": ["b", -1.5, true]}'), ['attribute "a"', 'string "b"', 'number -1.5', 'constant true']);
        assert.deepEqual(await tokens('html', "<!-- c --><a href='x'>it's &amp;</a>"), ['comment <!-- c -->', 'keyword a', 'attribute href', "string 'x'", 'constant &amp;', 'keyword a']);
        assert.deepEqual(await tokens('diff', '@@ -1 +1 @@\n-a\n+b\n c'), ['meta @@ -1 +1 @@', 'deleted -a', 'added +b']);
        assert.deepEqual(await tokens('sql', "SELECT a FROM t -- x\nWHERE b = 'it'"), ['keyword SELECT', 'keyword FROM', 'comment -- x', 'keyword WHERE', "string 'it'"]);
        assert.deepEqual(await tokens('rust', "#[derive(A)]\nfn f<'a>(x: &'a str) -> char { 'x' }"),
            ['meta #[derive(A)]', 'keyword fn', "meta 'a", "meta 'a", 'type str', 'type char', "string 'x'"]);
        assert.deepEqual(await tokens('yaml', 'a: 1 # x\nb:\n  - "c"'), ['attribute a', 'number 1', 'comment # x', 'attribute b', 'string "c"']);
        assert.deepEqual(await tokens('constructor', 'int x'), []);
        // No part of the code is lost, whatever language is named.
        const whole = await page.evaluate((codes) => ['c', 'cpp', 'cs', 'java', 'kt', 'swift', 'go', 'rs', 'zig', 'js', 'ts', 'py', 'rb', 'php', 'lua', 'r', 'jl', 'hs', 'sql', 'sh', 'ps1', 'make', 'docker', 'cmake', 'json', 'yaml', 'toml', 'css', 'diff', 'tex', 'md', 'html', '', 'x']
            .filter((l) => codes.some((c) => highlight(c, l).map((n) => n.textContent ?? n).join('') !== c)), [hostile, text, '"unfinished', "it's\n<a b=c", '/* x']);
        assert.deepEqual(whole, []);
        assert.equal(await page.evaluate(() => markdown('```make\na:\n\tb\n```')[0].querySelector('code').textContent), 'a:\n\tb');
        await close(page);
    },

    async 'hostile answers are text'() {
        const page = await open();
        await mock(page, stream([hostile], hostile));
        await page.setInputFiles('#attach-file', { name: '<img src=x onerror=window.hit=30>.html', mimeType: 'text/html', buffer: Buffer.from(hostile) });
        await send(page, hostile);
        await ended(page);
        await page.waitForTimeout(200);
        const check = async () => {
            const seen = await page.evaluate(() => ({
                hit: window.hit,
                made: document.querySelectorAll('#messages :is(script, img, iframe, object, form, style, link, base), #messages svg [onload], nav :is(img, script)').length,
                handlers: [...document.querySelectorAll('#messages *, nav *')].flatMap((e) => e.getAttributeNames()).filter((n) => n.startsWith('on') || n === 'style'),
                links: [...document.querySelectorAll('#messages a')].map((a) => [new URL(a.href).protocol, a.rel, a.target].join()),
            }));
            assert.equal(seen.hit, undefined);
            assert.equal(seen.made, 0);
            assert.deepEqual(seen.handlers, []);
            for (const link of seen.links) assert.match(link, /^https?:,noopener noreferrer,_blank$/);
            return seen.links.length;
        };
        assert.ok(await check() > 0);
        // The same result from data of an earlier version, and from a file.
        const bad = [{ id: '"><img onerror=hit=1>', title: hostile, chosen: { __proto__: 'x' }, messages: [{ role: 'user', id: { toString: 1 }, parent: 5, created: 'x', state: 'y', files: [7, null] }, { role: 'assistant', content: hostile, error: hostile, figure: hostile, reasoning: hostile, files: [{ name: hostile, text: 7 }] },
            { role: 'system', content: 'x' }, null, 7] }, 'x', { messages: 3 }];
        await page.evaluate((c) => localStorage.setItem('powerinfer.conversations', JSON.stringify(c)), bad);
        await page.evaluate(() => { location.hash = ''; });
        await reload(page);
        await page.locator('.open').first().click();
        await page.waitForSelector('.message.assistant');
        await check();
        await page.setInputFiles('#file', { name: 'x.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify({ conversations: bad })) });
        await page.waitForSelector('#toast:visible');
        await page.locator('.open').first().click();
        await page.waitForTimeout(100);
        await check();
        // Formulas and code.
        await page.evaluate((s) => document.getElementById('messages').append(...markdown(s)),
            '$\\text{<img src=x onerror=window.hit=31>}$ $\\href{javascript:window.hit=32}{x}$ \\(<script>window.hit=33</script>\\)\n\n```html\n<img src=x onerror=window.hit=34>\n```');
        await check();
        await close(page);
    },
};
