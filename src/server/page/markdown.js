/* Markdown of a message as DOM nodes. Text of a model only ever becomes text nodes, and links lead
 * to http, https and mailto addresses, so that nothing in it can run. */
const markdown = (() => {
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

    /* What can stand within a line; the first that matches at the earliest place counts. Strong and
     * emphasis do not begin or end with a blank. */
    const marks = [
        { find: /(`+)([^`]|[^`][\s\S]{0,2000}?[^`])\1(?!`)/, make: (m) => element('code', [m[2].replace(/^ (.*\S.*) $/, '$1')]) },
        { find: /\\([\\`*_{}[\]()#+\-.!|~<>])/, make: (m) => m[1] },
        { find: /!?\[([^[\]\n]{0,500})\]\(\s*<?([^\s<>()]{1,2000}(?:\([^\s()]{0,500}\))?[^\s<>()]{0,500})>?(?:\s+"[^"\n]{0,500}")?\s*\)/, make: (m, depth) => link(inline(m[1], depth), m[2]) },
        { find: /\*\*(?=\S)([\s\S]{0,1000}?\S)\*\*(?!\*)/, make: (m, depth) => element('strong', inline(m[1], depth)) },
        { find: /(?<![\w])__(?=\S)([\s\S]{0,1000}?\S)__(?![\w])/, make: (m, depth) => element('strong', inline(m[1], depth)) },
        { find: /~~(?=\S)([\s\S]{0,1000}?\S)~~/, make: (m, depth) => element('s', inline(m[1], depth)) },
        { find: /\*(?=[^\s*])([\s\S]{0,1000}?[^\s*])\*(?!\*)/, make: (m, depth) => element('em', inline(m[1], depth)) },
        { find: /(?<![\w])_(?=[^\s_])([\s\S]{0,1000}?[^\s_])_(?![\w])/, make: (m, depth) => element('em', inline(m[1], depth)) },
        { find: /https?:\/\/[^\s<>"'`]{1,2000}[^\s<>"'`.,;:!?)\]}*_]/, make: (m) => link([m[0]], m[0]) },
        { find: / {2,}\n/, make: () => element('br') },
    ];
    function inline(text, depth = 0) {
        const out = [];
        while (text) {
            let best = null, how = null;
            for (const mark of depth < 8 ? marks : []) {
                const m = mark.find.exec(text);
                if (m && (!best || m.index < best.index)) [best, how] = [m, mark];
            }
            if (!best) break;
            if (best.index) out.push(text.slice(0, best.index));
            out.push(how.make(best, depth + 1));
            text = text.slice(best.index + best[0].length);
        }
        if (text) out.push(text);
        return out;
    }

    const block = (code, language) => {
        const copy = element('button', ['Copy'], 'text');
        copy.type = 'button';
        copy.dataset.copy = 'block';
        const pre = element('pre', [element('code', [code])]);
        pre.tabIndex = 0;
        pre.setAttribute('aria-label', language ? `Code, ${language}` : 'Code');
        pre.setAttribute('role', 'region');
        return element('div', [element('div', [element('span', [language || 'text']), copy], 'block-head'), pre], 'block');
    };

    const cells = (line) => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((c) => c.trim());
    const isRule = (line) => /^ {0,3}([-*_])( *\1){2,} *$/.test(line);
    const item = /^( *)([-*+]|\d{1,9}[.)])(?: +(.*)|$)/;
    const fence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
    const begins = (line) => fence.test(line) || /^ {0,3}(#{1,6} |>)/.test(line) || isRule(line) || item.test(line);

    function table(lines, i) {
        const head = cells(lines[i]);
        let end = i + 2;
        while (end < lines.length && lines[end].includes('|') && lines[end].trim()) end++;
        const row = (line, name) => element('tr', head.map((_, k) => element(name, inline(cells(line)[k] ?? ''))));
        const bodyRows = lines.slice(i + 2, end).map((line) => row(line, 'td'));
        const t = element('table', [element('thead', [row(lines[i], 'th')]), element('tbody', bodyRows)]);
        t.tabIndex = 0;
        return [t, end];
    }

    /* Lines of items that belong together; what is indented further is within an item. */
    function list(lines, i, depth) {
        const first = item.exec(lines[i]), indent = first[1].length, ordered = /\d/.test(first[2]);
        const out = element(ordered ? 'ol' : 'ul');
        if (ordered && parseInt(first[2], 10) !== 1) out.start = parseInt(first[2], 10);
        while (i < lines.length) {
            const m = item.exec(lines[i]);
            if (!m || m[1].length > indent + 1 || m[1].length < indent || /\d/.test(m[2]) !== ordered || isRule(lines[i])) break;
            const inner = [m[3] ?? ''];
            const pad = indent + 2;
            for (i++; i < lines.length; i++) {
                const line = lines[i], space = line.length - line.trimStart().length;
                if (!line.trim()) {
                    const next = lines.slice(i + 1).find((l) => l.trim());
                    if (next === undefined || next.length - next.trimStart().length < pad) break;
                    inner.push('');
                } else if (space >= pad) {
                    inner.push(line.slice(Math.min(space, pad)));
                } else if (begins(line) || inner.at(-1) === '') {
                    break;
                } else {
                    inner.push(line);
                }
            }
            const parts = blocks(inner, depth + 1);
            if (parts.length && parts[0].tagName === 'P') parts.splice(0, 1, ...parts[0].childNodes);
            out.append(element('li', parts));
            while (i + 1 < lines.length && !lines[i].trim() && item.test(lines[i + 1])) i++;
        }
        return [out, i];
    }

    function blocks(lines, depth = 0) {
        const out = [];
        for (let i = 0; i < lines.length;) {
            const line = lines[i], open = fence.exec(line), heading = /^ {0,3}(#{1,6}) +(.*?)(?: +#+)? *$/.exec(line);
            if (!line.trim()) {
                i++;
            } else if (open) {
                let end = i + 1;
                while (end < lines.length && !(lines[end].trim().startsWith(open[1]) && /^[`~]+$/.test(lines[end].trim()))) end++;
                out.push(block(lines.slice(i + 1, end).join('\n'), open[2].trim().split(/\s/)[0]));
                i = end + 1;
            } else if (heading) { /* the page itself has the first two levels */
                out.push(element(`h${Math.min(heading[1].length + 2, 6)}`, inline(heading[2])));
                i++;
            } else if (isRule(line)) {
                out.push(element('hr'));
                i++;
            } else if (/^ {0,3}>/.test(line) && depth < 8) {
                const inner = [];
                while (i < lines.length && /^ {0,3}>/.test(lines[i])) inner.push(lines[i++].replace(/^ {0,3}> ?/, ''));
                out.push(element('blockquote', blocks(inner, depth + 1)));
            } else if (item.test(line) && depth < 8) {
                const [made, end] = list(lines, i, depth);
                out.push(made);
                i = end;
            } else if (line.includes('|') && /^ *\|?( *:?-+:? *\|)+( *:?-+:? *)?\|? *$/.test(lines[i + 1] ?? '')) {
                const [made, end] = table(lines, i);
                out.push(made);
                i = end;
            } else {
                const first = i++;
                while (i < lines.length && lines[i].trim() && !begins(lines[i])) i++;
                out.push(element('p', inline(lines.slice(first, i).join('\n'))));
            }
        }
        return out;
    }
    return (text) => blocks(text.replace(/\r\n?/g, '\n').split('\n'));
})();
