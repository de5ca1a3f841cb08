/* markdown.js: converts the Markdown of a message to DOM nodes. Text of a model only becomes text
 * nodes, and links lead to http, https and mailto addresses, so that nothing in the text can run.
 * Formulas are found here, before backslashes and stars are interpreted, and rendered by
 * math.js. */
const markdown = (() => {
    const deepest = 8; /* maximum nesting of blocks and emphasis */

    const element = (name, children = [], className = '') => {
        const e = document.createElement(name);
        if (className) e.className = className;
        e.append(...children);
        return e;
    };
    const isSafe = (address) => {
        try {
            return ['http:', 'https:', 'mailto:'].includes(new URL(address).protocol);
        } catch {
            return false;
        }
    };
    const link = (children, address) => {
        if (!isSafe(address)) return element('span', children);
        const a = element('a', children);
        a.href = address;
        a.target = '_blank';
        a.rel = 'noopener noreferrer';
        return a;
    };

    /* ---- within a line ----------------------------------------------------------------------- */

    const isSpace = (c) => c === undefined || /\s/.test(c);
    const isWord = (c) => c !== undefined && /[\p{L}\p{N}_]/u.test(c);

    /* End of the code span that begins at `at`; 0: it has no end. */
    function codeEnd(text, at) {
        const run = /`+/y;
        run.lastIndex = at;
        const ticks = run.exec(text)[0];
        for (let i = text.indexOf(ticks, at + ticks.length); i >= 0;) {
            let end = i;
            while (text[end] === '`') end++;
            if (end - i === ticks.length) return end;
            i = text.indexOf(ticks, end);
        }
        return 0;
    }

    /* Place of the mark (one, two or three of one character) that ends an emphasis; -1: none. */
    function closer(text, from, mark) {
        const c = mark[0];
        for (let i = from; i < text.length;) {
            if (text[i] === '\\') {
                i += 2;
            } else if (text[i] === '`') {
                const end = codeEnd(text, i);
                while (!end && text[i] === '`') i++;
                if (end) i = end;
            } else if (text[i] === c) {
                let end = i;
                while (text[end] === c) end++;
                const fits = end - i === mark.length || (end - i === 3 && mark.length < 3);
                if (fits && i > from && !isSpace(text[i - 1]) && (c !== '_' || !isWord(text[end])))
                    return end - mark.length;
                i = end;
            } else {
                i++;
            }
        }
        return -1;
    }

    /* Finds `$...$`, `$$...$$`, `\(...\)`, `\[...\]`: [source, is on a separate line, end]. A
     * dollar sign that could be money is not a mark: a formula has no blank at its ends, no digit
     * after it, and no plain words in it. */
    function formulaAt(text, at) {
        const open = text.startsWith('$$', at) ? '$$' : text[at] === '$' ? '$' : text.slice(at, at + 2);
        const close = { $: '$', $$: '$$', '\\(': '\\)', '\\[': '\\]' }[open];
        for (let i = at + open.length; i < text.length && i < at + 5000; i++) {
            if (text.startsWith(close, i)) {
                const source = text.slice(at + open.length, i),
                    end = i + close.length;
                if (!source.trim()) return null;
                if (
                    open === '$' &&
                    (isSpace(source[0]) ||
                        isSpace(source.at(-1)) ||
                        /\d/.test(text[end] ?? '') ||
                        (/[A-Za-z]{2,}\s+[A-Za-z]{2,}|^[\d.,]+\s+[A-Za-z]{2,}/.test(source) &&
                            !/[\\^_={}]/.test(source)))
                )
                    return null;
                return [source, open === '$$' || open === '\\[', end];
            }
            if (text[i] === '\\') i++;
        }
        return null;
    }
    const formula = (source, isDisplay, verbatim) => math.make(source, isDisplay) ?? element('code', [verbatim], 'tex');

    const rules = {
        escape: /\\([\\`*_{}[\]()#+\-.!|~<>$&"'/:;=?@^,%])/y,
        link: /!?\[((?:[^[\]\\\n]|\\.|\[[^[\]\n]{0,200}\]){0,500})\]\(\s*<?([^\s<>()]{1,2000}(?:\([^\s()]{0,500}\))?[^\s<>()]{0,500})>?(?:\s+"[^"\n]{0,500}")?\s*\)/y,
        auto: /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y,
        bare: /https?:\/\/[^\s<>"'`]{1,2000}[^\s<>"'`.,;:!?)\]}*_]/y,
        tag: /<(sub|sup|kbd|u|b|i|s|mark)>([^<]{0,500})<\/\1>/y,
        line: /<br\s*\/?>/y,
        entity: /&(amp|lt|gt|quot|apos|nbsp);/y,
    };
    const entities = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0' };
    const emphasis = { '*': 'em', '**': 'strong', _: 'em', __: 'strong', '~~': 's' };

    function inline(text, depth = 0) {
        const out = [],
            hopeless = new Set(); /* marks without an end in the rest */
        let plain = '';
        const add = (node, end) => {
            if (plain) out.push(plain);
            plain = '';
            out.push(node);
            return end;
        };
        const match = (name, at) => {
            rules[name].lastIndex = at;
            return rules[name].exec(text);
        };
        /* End of the construct that begins at a special character; 0: none begins there. */
        function special(i) {
            const c = text[i];
            let m;
            if (c === '\n') return add(element('br'), i + 1);
            if (c === '`') {
                const end = codeEnd(text, i),
                    ticks = /`+/y;
                ticks.lastIndex = i;
                const n = ticks.exec(text)[0].length;
                if (end)
                    return add(
                        element('code', [
                            text
                                .slice(i + n, end - n)
                                .replace(/\n/g, ' ')
                                .replace(/^ (.*\S.*) $/, '$1'),
                        ]),
                        end,
                    );
                plain += text.slice(i, i + n);
                return i + n;
            }
            if (c === '$' || (c === '\\' && '(['.includes(text[i + 1] ?? ' '))) {
                const f = formulaAt(text, i);
                if (f) return add(formula(f[0], f[1], text.slice(i, f[2])), f[2]);
            }
            if (c === '\\') {
                m = match('escape', i);
                if (m) plain += m[1];
                return m ? i + 2 : text[i + 1] === '\n' ? add(element('br'), i + 2) : 0;
            }
            if (c === '[' || c === '!') {
                m = match('link', i);
                return m ? add(link(inline(m[1], depth + 1), m[2]), i + m[0].length) : 0;
            }
            if (c === '<') {
                if ((m = match('line', i))) return add(element('br'), i + m[0].length);
                if ((m = match('auto', i))) return add(link([m[1]], m[1]), i + m[0].length);
                m = match('tag', i);
                return m ? add(element(m[1], inline(m[2], depth + 1)), i + m[0].length) : 0;
            }
            if (c === '&') {
                m = match('entity', i);
                if (m) plain += entities[m[1]];
                return m ? i + m[0].length : 0;
            }
            if (c === 'h') {
                m = isWord(text[i - 1]) ? null : match('bare', i);
                return m ? add(link([m[0]], m[0]), i + m[0].length) : 0;
            }
            return '*_~'.includes(c) ? emphasised(i) : 0;
        }
        function emphasised(i) {
            const c = text[i];
            let n = 1;
            while (text[i + n] === c) n++;
            const mark = text.slice(i, i + n);
            const opens =
                n <= 3 && !isSpace(text[i + n]) && (c !== '_' || !isWord(text[i - 1])) && (c !== '~' || n === 2);
            const end = opens && !hopeless.has(mark) ? closer(text, i + n, mark) : -1;
            if (end < 0) {
                if (opens) hopeless.add(mark);
                plain += mark;
                return i + n;
            }
            const within = inline(text.slice(i + n, end), depth + 1);
            const made = n === 3 ? element('strong', [element('em', within)]) : element(emphasis[mark], within);
            return add(made, end + n);
        }
        if (depth > deepest) return [text];
        for (let i = 0; i < text.length;) {
            const end = /[\n`$\\[!<&h*_~]/.test(text[i]) ? special(i) : 0;
            if (!end) plain += text[i];
            i = end || i + 1;
        }
        if (plain) out.push(plain);
        return out;
    }

    /* ---- blocks ------------------------------------------------------------------------------ */

    const fence = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
    const item = /^( *)([-*+]|\d{1,9}[.)])(?: +(.*)|$)/;
    const isRule = (line) => /^ {0,3}([-*_])( *\1){2,} *$/.test(line);
    const isAlignment = (line) => /^ *\|?( *:?-+:? *\|)+( *:?-+:? *)?\|? *$/.test(line ?? '');
    const begins = (line) =>
        fence.test(line) ||
        /^ {0,3}(#{1,6} |>)/.test(line) ||
        isRule(line) ||
        item.test(line) ||
        /^ {0,3}(\$\$|\\\[)/.test(line);
    const spaceOf = (line) => line.length - line.trimStart().length;

    function codeBlock(code, language) {
        const copy = element('button', [icon('copy'), element('span', ['Copy'])], 'text copy');
        copy.type = 'button';
        copy.dataset.action = 'block';
        const pre = element('pre', [element('code', highlight(code, language))]);
        pre.tabIndex = 0;
        pre.setAttribute('aria-label', language ? `Code, ${language}` : 'Code');
        pre.setAttribute('role', 'region');
        return element(
            'div',
            [element('div', [element('span', [highlight.nameOf(language)]), copy], 'block-head'), pre],
            'block',
        );
    }

    /* Cells of a line; a | in code or after a backslash separates no cells. */
    function cells(line) {
        const out = [''],
            text = line
                .trim()
                .replace(/^\|/, '')
                .replace(/(?<!\\)\|$/, '');
        for (let i = 0; i < text.length; i++) {
            const end = text[i] === '`' ? codeEnd(text, i) : 0;
            if (end) {
                out[out.length - 1] += text.slice(i, end).replaceAll('\\|', '|');
                i = end - 1;
            } else if (text[i] === '\\' && text[i + 1] === '|') {
                out[out.length - 1] += '|';
                i++;
            } else if (text[i] === '|') {
                out.push('');
            } else {
                out[out.length - 1] += text[i];
            }
        }
        return out.map((c) => c.trim());
    }

    function table(lines) {
        const head = cells(lines[0]);
        const align = cells(lines[1]).map((c) => (/^:-+:$/.test(c) ? 'center' : /-:$/.test(c) ? 'right' : ''));
        const row = (line, name) => {
            const own = cells(line);
            return element(
                'tr',
                head.map((_, k) => element(name, inline(own[k] ?? ''), align[k] ?? '')),
            );
        };
        const t = element('table', [
            element('thead', [row(lines[0], 'th')]),
            element(
                'tbody',
                lines.slice(2).map((line) => row(line, 'td')),
            ),
        ]);
        const box = element('div', [t], 'table');
        box.tabIndex = 0;
        return box;
    }

    /* End of the list that begins at line i, and its items as lists of lines. Lines indented
     * further than the first mark belong to an item. */
    function listItems(lines, i) {
        const first = item.exec(lines[i]),
            indent = first[1].length,
            isOrdered = /\d/.test(first[2]),
            list = [];
        while (i < lines.length) {
            const m = item.exec(lines[i]);
            if (
                !m ||
                m[1].length > indent + 1 ||
                m[1].length < indent ||
                /\d/.test(m[2]) !== isOrdered ||
                isRule(lines[i])
            )
                break;
            const inner = [m[3] ?? ''],
                content = m[1].length + m[2].length + 1;
            for (i++; i < lines.length; i++) {
                const line = lines[i],
                    space = spaceOf(line);
                if (!line.trim()) {
                    const next = lines.slice(i + 1, i + 20).find((l) => l.trim());
                    if (next === undefined || spaceOf(next) < indent + 2) break;
                    inner.push('');
                } else if (space >= indent + 2) {
                    inner.push(line.slice(Math.min(space, content)));
                } else if (begins(line) || inner.at(-1) === '') {
                    break;
                } else {
                    inner.push(line);
                }
            }
            list.push(inner);
            let next = i;
            while (next < lines.length && !lines[next].trim()) next++;
            if (next > i && next < lines.length && item.test(lines[next])) i = next;
        }
        return { end: i, list, isOrdered, start: parseInt(first[2], 10) };
    }

    function makeList({ list, isOrdered, start }, depth) {
        const out = element(isOrdered ? 'ol' : 'ul');
        if (isOrdered && start !== 1) out.start = start;
        for (const inner of list) {
            const task = /^\[([ xX])\] +(?=\S)/.exec(inner[0]);
            if (task) inner[0] = inner[0].slice(task[0].length);
            const parts = blocks(inner, depth + 1);
            if (parts[0]?.tagName === 'P' && parts.filter((p) => p.tagName === 'P').length === 1)
                parts.splice(0, 1, ...parts[0].childNodes);
            const li = element('li', parts, task ? 'task' : '');
            if (task) {
                const box = Object.assign(document.createElement('input'), {
                    type: 'checkbox',
                    disabled: true,
                    checked: task[1] !== ' ',
                });
                box.setAttribute('aria-label', box.checked ? 'Done' : 'Not done');
                (li.firstElementChild?.tagName === 'P' ? li.firstElementChild : li).prepend(box);
            }
            out.append(li);
        }
        return out;
    }

    /* End of a formula on separate lines; 0: no formula. */
    function formulaEnd(lines, i) {
        const open = /^ {0,3}(\$\$|\\\[|\\begin\{((?:equation|align|gather|alignat|multline)\*?)\})/.exec(lines[i]);
        if (!open) return 0;
        const close = open[2] ? `\\end{${open[2]}}` : open[1] === '$$' ? '$$' : '\\]';
        for (let end = i; end < lines.length && end < i + 200; end++) {
            const line = end === i ? lines[i].slice(open[0].length) : lines[end],
                at = line.indexOf(close);
            if (at >= 0) return /^[\s.,;]*$/.test(line.slice(at + close.length)) ? end + 1 : 0;
        }
        return 0;
    }
    function formulaBlock(source) {
        const text = source.trim(),
            inner = /^(?:\$\$([\s\S]*)\$\$|\\\[([\s\S]*)\\\])([.,;]?)\s*$/.exec(text);
        const made = formula(inner ? `${inner[1] ?? inner[2]}${inner[3]}` : text, true, text);
        const box = element('div', [made], 'formula');
        box.tabIndex = 0;
        box.setAttribute('role', 'group');
        box.setAttribute('aria-label', 'Formula');
        return box;
    }

    /* Divides lines into blocks: where each block begins and ends, and how to render it. */
    function divide(lines, depth) {
        const out = [];
        const add = (from, end, make) => {
            out.push({ source: lines.slice(from, end).join('\n'), make });
            return end;
        };
        for (let i = 0; i < lines.length;) {
            const line = lines[i],
                from = i,
                open = fence.exec(line),
                heading = /^ {0,3}(#{1,6}) +(.*?)(?: +#+)? *$/.exec(line);
            let end;
            if (!line.trim()) {
                i++;
            } else if (open) {
                end = i + 1;
                while (
                    end < lines.length &&
                    !(lines[end].trim().startsWith(open[2]) && /^\s*(`+|~+)\s*$/.test(lines[end]))
                )
                    end++;
                const code = lines
                    .slice(i + 1, end)
                    .map((l) => l.slice(Math.min(spaceOf(l), open[1].length)))
                    .join('\n');
                i = add(from, Math.min(end + 1, lines.length), () =>
                    codeBlock(code, open[3].trim().split(/[\s{,]/)[0]),
                );
            } else if (heading) {
                /* the page uses the first two levels */
                i = add(from, i + 1, () => element(`h${Math.min(heading[1].length + 2, 6)}`, inline(heading[2])));
            } else if (isRule(line)) {
                i = add(from, i + 1, () => element('hr'));
            } else if ((end = formulaEnd(lines, i))) {
                const source = lines.slice(i, end).join('\n');
                i = add(from, end, () => formulaBlock(source));
            } else if (/^ {0,3}>/.test(line) && depth < deepest) {
                const inner = [];
                while (i < lines.length && /^ {0,3}>/.test(lines[i])) inner.push(lines[i++].replace(/^ {0,3}> ?/, ''));
                add(from, i, () => element('blockquote', blocks(inner, depth + 1)));
            } else if (item.test(line) && depth < deepest) {
                const list = listItems(lines, i);
                i = add(from, list.end, () => makeList(list, depth));
            } else if (line.includes('|') && isAlignment(lines[i + 1])) {
                for (end = i + 2; end < lines.length && lines[end].includes('|') && lines[end].trim();) end++;
                const rows = lines.slice(i, end);
                i = add(from, end, () => table(rows));
            } else if (/^ {4}/.test(line)) {
                for (end = i + 1; end < lines.length && (/^ {4}/.test(lines[end]) || !lines[end].trim());) end++;
                while (!lines[end - 1].trim()) end--;
                const code = lines
                    .slice(i, end)
                    .map((l) => l.slice(4))
                    .join('\n');
                i = add(from, end, () => codeBlock(code, ''));
            } else {
                i++;
                while (i < lines.length && lines[i].trim() && !begins(lines[i]) && !isAlignment(lines[i + 1])) i++;
                if (/^ {0,3}=+\s*$/.test(lines[i - 1]) && i > from + 1) {
                    const title = lines.slice(from, i - 1).join(' ');
                    add(from, i, () => element('h3', inline(title)));
                } else {
                    const text = lines
                        .slice(from, i)
                        .map((l) => l.trim())
                        .join('\n');
                    add(from, i, () => element('p', inline(text)));
                }
            }
        }
        return out;
    }
    const blocks = (lines, depth) => divide(lines, depth).map((b) => b.make());
    /* Tabs at the start of lines become four blanks; tabs in code stay. */
    function linesOf(text) {
        let open = null;
        return text
            .replace(/\r\n?/g, '\n')
            .split('\n')
            .map((line) => {
                const mark = /^[\s>]*(?:[-*+] +|\d+[.)] +)?(`{3,}|~{3,})/.exec(line);
                const isCode = !!open,
                    keepsTabs = isCode && !open.hasTab;
                if (mark && !open) open = { mark: mark[1], hasTab: /^\t/.test(line) };
                else if (isCode && mark && mark[1].startsWith(open.mark)) open = null;
                return keepsTabs ? line : line.replace(/^[ \t]+/, (space) => space.replace(/\t/g, '    '));
            });
    }

    /* Renders the text into an element; blocks whose text is unchanged keep their nodes. */
    const drawn = new WeakMap(); /* element -> [{ source, node }] */
    function update(target, text) {
        const before = drawn.get(target) ?? [],
            now = divide(linesOf(text), 0);
        if (!before.length) target.replaceChildren();
        now.forEach((block, i) => {
            const old = before[i];
            block.node = old?.source === block.source ? old.node : block.make();
            if (!old) target.append(block.node);
            else if (old.node !== block.node) old.node.replaceWith(block.node);
        });
        for (const old of before.slice(now.length)) old.node.remove();
        drawn.set(
            target,
            now.map(({ source, node }) => ({ source, node })),
        );
    }

    return Object.assign((text) => blocks(linesOf(text), 0), { update, forget: (target) => drawn.delete(target) });
})();
