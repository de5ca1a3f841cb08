/* math.js: converts LaTeX formulas to MathML, which browsers render. math.make() returns null for
 * unknown LaTeX; the formula is then shown as written. */
const math = (() => {
    const longest = 8000,
        deepest = 60; /* maximum characters; maximum nesting of groups */
    const ns = 'http://www.w3.org/1998/Math/MathML';
    const { letters, signs, operators, delimiters, large, integrals, accents, below, functions, limits, spaces } =
        mathSymbols;

    const element = (name, children = [], attributes = {}) => {
        const e = document.createElementNS(ns, name);
        for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
        e.append(...children);
        return e;
    };
    const row = (children) => (children.length === 1 ? children[0] : element('mrow', children));
    const operator = (text, attributes) => element('mo', [text], attributes);
    const space = (width) => element('mspace', [], { width: `${width}em` });
    const fence = (text, form) => operator(text, { fence: 'true', form, stretchy: 'true', symmetric: 'true' });

    /* Styles of letters: the code points where capitals, small letters and digits begin, and the
     * letters that have other code points. */
    const styles = {
        bold: { A: 0x1d400, a: 0x1d41a, 0: 0x1d7ce, Α: 0x1d6a8, α: 0x1d6c2 },
        boldItalic: { A: 0x1d468, a: 0x1d482, 0: 0x1d7ce, Α: 0x1d71c, α: 0x1d736 },
        double: { A: 0x1d538, a: 0x1d552, 0: 0x1d7d8, but: { C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ' } },
        script: {
            A: 0x1d49c,
            a: 0x1d4b6,
            but: { B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ', e: 'ℯ', g: 'ℊ', o: 'ℴ' },
        },
        fraktur: { A: 0x1d504, a: 0x1d51e, but: { C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ' } },
        sans: { A: 0x1d5a0, a: 0x1d5ba, 0: 0x1d7e2 },
        mono: { A: 0x1d670, a: 0x1d68a, 0: 0x1d7f6 },
    };
    const styleOf = {
        mathbf: 'bold',
        bm: 'boldItalic',
        boldsymbol: 'boldItalic',
        mathbb: 'double',
        mathcal: 'script',
        mathscr: 'script',
        mathfrak: 'fraktur',
        mathsf: 'sans',
        mathtt: 'mono',
        mathrm: 'normal',
        mathit: '',
        mathnormal: '',
    };
    function styled(c, style) {
        const set = styles[style];
        if (!set) return c;
        if (set.but?.[c]) return set.but[c];
        for (const [first, last] of ['AZ', 'az', '09', 'ΑΩ', 'αω'])
            if (c >= first && c <= last && set[first])
                return String.fromCodePoint(set[first] + c.codePointAt(0) - first.codePointAt(0));
        return c;
    }
    const identifier = (c, style) => {
        const text = styled(c, style);
        return element('mi', [text], style === 'normal' || (style && text !== c) ? { mathvariant: 'normal' } : {});
    };

    /* Matrices and similar environments: delimiters and alignment of columns. */
    const environments = {
        matrix: ['', ''],
        pmatrix: ['(', ')'],
        bmatrix: ['[', ']'],
        Bmatrix: ['{', '}'],
        vmatrix: ['|', '|'],
        Vmatrix: ['‖', '‖'],
        smallmatrix: ['', ''],
        array: ['', ''],
        cases: ['{', '', 'left'],
        dcases: ['{', '', 'left'],
        rcases: ['', '}', 'left'],
        aligned: ['', '', 'pairs'],
        align: ['', '', 'pairs'],
        alignat: ['', '', 'pairs'],
        alignedat: ['', '', 'pairs'],
        split: ['', '', 'pairs'],
        eqnarray: ['', '', 'pairs'],
        gathered: ['', ''],
        gather: ['', ''],
        equation: ['', ''],
        multline: ['', ''],
        subarray: ['', ''],
    };

    function parse(source, isDisplay) {
        const pattern =
            /\\(?:(?:operatorname|hspace)\*|[A-Za-z]+|[\s\S])|(?:\d+(?:[.,]\d+)*|\.\d+)|%[^\n]*|\s+|[\s\S]/gu;
        const tokens = (source.match(pattern) ?? []).map((t) => (t[0] === '%' || !t.trim() ? ' ' : t));
        let at = 0,
            depth = 0;

        const wrong = (what) => {
            throw new SyntaxError(what);
        };
        const skip = () => {
            while (tokens[at] === ' ') at++;
        };
        const peek = () => {
            skip();
            return tokens[at];
        };
        const next = () => {
            skip();
            return tokens[at++] ?? wrong('the formula ends early');
        };
        const accept = (token) => {
            if (peek() !== token) return false;
            at++;
            return true;
        };
        const expect = (token) => accept(token) || wrong(`no ${token}`);
        /* The characters between braces, uninterpreted, or in brackets, which are optional. */
        function raw(open = '{', close = '}') {
            if (peek() !== open) return open === '{' ? next() : '';
            let text = '',
                level = 0;
            for (at++; at < tokens.length; at++) {
                if (tokens[at] === close && level === 0) {
                    at++;
                    return text;
                }
                level += tokens[at] === '{' ? 1 : tokens[at] === '}' ? -1 : 0;
                text += tokens[at];
            }
            return wrong(`no ${close}`);
        }

        /* An argument: a group or one token; of a number, one digit. */
        function argument(style) {
            if (accept('{')) return group('}', style);
            const t = peek() ?? '';
            if (/^\d./.test(t)) tokens.splice(at, 1, t[0], t.slice(1));
            return atom(style);
        }
        function group(end, style) {
            const inner = sequence(style, (t) => t === end);
            expect(end);
            return row(inner);
        }

        function sequence(style, ends) {
            const out = [];
            if (++depth > deepest) wrong('too deep');
            for (let t = peek(); t !== undefined && !ends(t); t = peek()) {
                if (['\\displaystyle', '\\textstyle', '\\scriptstyle', '\\limits', '\\nolimits'].includes(t)) {
                    at++;
                    continue;
                }
                if (t === '\\rm' || t === '\\bf') {
                    at++;
                    style = t === '\\rm' ? 'normal' : 'bold';
                    continue;
                }
                if (t === '\\over' || t === '\\choose') {
                    at++;
                    const top = row(out.splice(0)),
                        bottom = row(sequence(style, ends));
                    out.push(
                        t === '\\over'
                            ? element('mfrac', [top, bottom])
                            : row([
                                  fence('(', 'prefix'),
                                  element('mfrac', [top, bottom], { linethickness: '0' }),
                                  fence(')', 'postfix'),
                              ]),
                    );
                    continue;
                }
                out.push(...scripted(style));
            }
            depth--;
            return out;
        }

        /* An atom with its superscript and subscript. */
        function scripted(style) {
            const first = tokens[at],
                isFunction =
                    first[0] === '\\' &&
                    (functions.has(first.slice(1)) || limits.has(first.slice(1)) || first.startsWith('\\operatorname'));
            const base = '^_'.includes(first) || first === "'" ? element('mrow') : atom(style);
            let under = null,
                over = null,
                above = '';
            let onLimits = base.limits;
            for (;;) {
                if (accept('\\limits')) onLimits = true;
                else if (accept('\\nolimits')) onLimits = false;
                else if (accept("'")) above += '′';
                else if (accept('_')) under = under ? wrong('two subscripts') : argument(style);
                else if (accept('^')) over = over ? wrong('two superscripts') : argument(style);
                else break;
            }
            if (above) over = over ? row([operator(above), over]) : operator(above);
            const names = onLimits ? ['munder', 'mover', 'munderover'] : ['msub', 'msup', 'msubsup'];
            const made =
                under && over
                    ? element(names[2], [base, under, over])
                    : under
                      ? element(names[0], [base, under])
                      : over
                        ? element(names[1], [base, over])
                        : base;
            const after = isFunction ? peek() : undefined;
            const needsSpace =
                after !== undefined &&
                /^(?:[\p{L}\d]|\\[A-Za-z])/u.test(after) &&
                !/^\\(?:left|right|[bB]ig|end|[,;:!]|q?quad|over|to|l?e?q|g?e?q|in|cdot|times)/.test(after);
            return needsSpace ? [made, space('.1667')] : [made];
        }

        function atom(style) {
            const t = next();
            if (t[0] === '\\' && t.length > 1) return command(t.slice(1), style);
            if (t === '{') return group('}', style);
            if ('}&^_'.includes(t)) wrong(`${t} in a wrong place`);
            if (/^[\d.]/.test(t)) return element('mn', [[...t].map((c) => styled(c, style)).join('')]);
            if (/^\p{L}$/u.test(t)) return identifier(t, style);
            if (t === '-') return operator('−');
            if (t === '*') return operator('∗');
            if (t === '~') return space('.3333');
            if ('()[]'.includes(t)) return operator(t, { stretchy: 'false' });
            if (t === '|') return operator('|', { stretchy: 'false', lspace: '0', rspace: '0' });
            if (t === '/') return operator('/', { lspace: '0', rspace: '0' });
            if (t === ',' || t === ';' || t === ':') return operator(t, t === ',' ? { separator: 'true' } : {});
            return operator(t, { stretchy: 'false' });
        }

        const delimiter = () => {
            const t = next();
            if (t === '.') return '';
            if (t === '<' || t === '>') return t === '<' ? '⟨' : '⟩';
            if (t[0] === '\\') return delimiters.get(t.slice(1)) ?? wrong(`no delimiter: ${t}`);
            return '()[]|/'.includes(t) ? t : wrong(`no delimiter: ${t}`);
        };
        function leftRight(style) {
            const parts = [fence(delimiter(), 'prefix')];
            for (;;) {
                parts.push(...sequence(style, (t) => t === '\\right' || t === '\\middle'));
                if (accept('\\middle')) {
                    parts.push(fence(delimiter(), 'infix'));
                    continue;
                }
                expect('\\right');
                parts.push(fence(delimiter(), 'postfix'));
                return element(
                    'mrow',
                    parts.filter((p) => p.textContent || p.localName !== 'mo'),
                );
            }
        }

        function table(name, style) {
            const [open, close, align = ''] = environments[name.replace('*', '')];
            if (name.startsWith('alignat') || name.startsWith('alignedat') || name === 'subarray') raw();
            const columns = name === 'array' ? raw().replace(/[^lcr]/g, '') : '';
            if (align === '' && peek() === '[') raw('[', ']');
            const rows = [[]],
                ends = (t) => ['&', '\\\\', '\\cr', '\\end'].includes(t);
            for (;;) {
                while (['\\hline', '\\nonumber', '\\notag'].includes(peek())) at++;
                const cell = sequence(style, ends),
                    k = rows.at(-1).length;
                const place = columns
                    ? ({ l: 'left', c: '', r: 'right' }[columns[k]] ?? '')
                    : align === 'pairs'
                      ? k % 2
                          ? 'left'
                          : 'right'
                      : align;
                rows.at(-1).push(element('mtd', cell, place ? { class: place } : {}));
                const t = next();
                if (t === '&') continue;
                if (t === '\\end') break;
                raw('[', ']');
                rows.push([]);
            }
            if (raw() !== name) wrong(`\\end of another environment than ${name}`);
            const last = rows.at(-1);
            if (rows.length > 1 && last.length === 1 && !last[0].childNodes.length) rows.pop();
            const isTall =
                align === 'pairs' || name.startsWith('gather') || name === 'dcases' || name.startsWith('equation');
            const body = element(
                'mtable',
                rows.map((cells) => element('mtr', cells)),
                { ...(align && { class: align }), ...(isTall && { displaystyle: 'true' }) },
            );
            return element('mrow', [
                ...(open ? [fence(open, 'prefix')] : []),
                body,
                ...(close ? [fence(close, 'postfix')] : []),
            ]);
        }

        const textStyles = {
            textbf: { class: 'bold' },
            textit: { class: 'italic' },
            emph: { class: 'italic' },
            texttt: { class: 'mono' },
        };
        /* Text within a formula; the text may contain formulas. */
        function text(name) {
            const parts = raw().split(/(?<!\\)\$/),
                out = [];
            parts.forEach((part, i) => {
                if (!part) return;
                if (i % 2) out.push(...parse(part, false));
                else
                    out.push(
                        element(
                            'mtext',
                            [part.replace(/\\([ %$#&_{}])/g, '$1').replace(/^ | $/g, '\u00a0')],
                            textStyles[name],
                        ),
                    );
            });
            return row(out);
        }

        const fraction = (style, top, bottom, attributes) => element('mfrac', [top, bottom], attributes);
        function binomial(style) {
            const inner = fraction(style, argument(style), argument(style), { linethickness: '0' });
            return element('mrow', [fence('(', 'prefix'), inner, fence(')', 'postfix')]);
        }
        const withLimits = (e) => Object.assign(e, { limits: true });

        /* Commands with arguments. */
        const commands = {
            frac: (s) => fraction(s, argument(s), argument(s)),
            tfrac: (s) => element('mstyle', [fraction(s, argument(s), argument(s))], { displaystyle: 'false' }),
            dfrac: (s) => element('mstyle', [fraction(s, argument(s), argument(s))], { displaystyle: 'true' }),
            cfrac: (s) => commands.dfrac(s),
            binom: binomial,
            dbinom: binomial,
            tbinom: binomial,
            sqrt: (s) => {
                const root = accept('[') ? row(sequence(s, (t) => t === ']')) : null;
                if (root) expect(']');
                const body = argument(s);
                return root ? element('mroot', [body, root]) : element('msqrt', [body]);
            },
            left: leftRight,
            begin: (s) => {
                const name = raw();
                return Object.hasOwn(environments, name.replace('*', ''))
                    ? table(name, s)
                    : wrong(`the environment ${name}`);
            },
            text,
            mbox: text,
            textrm: text,
            textbf: text,
            textit: text,
            texttt: text,
            textsf: text,
            textnormal: text,
            emph: text,
            hbox: text,
            operatorname: () => element('mi', [raw().replace(/\\[,;: ]/g, '\u2009')]),
            'operatorname*': () => withLimits(element('mi', [raw()])),
            overset: (s) => {
                const over = argument(s);
                return element('mover', [argument(s), over]);
            },
            underset: (s) => {
                const under = argument(s);
                return element('munder', [argument(s), under]);
            },
            stackrel: (s) => commands.overset(s),
            substack: (s) => {
                expect('{');
                const lines = [sequence(s, (t) => t === '\\\\' || t === '}')];
                while (accept('\\\\')) lines.push(sequence(s, (t) => t === '\\\\' || t === '}'));
                expect('}');
                return element(
                    'mtable',
                    lines.map((l) => element('mtr', [element('mtd', l)])),
                    { class: 'stack' },
                );
            },
            not: () => {
                const t = next(),
                    known = {
                        '=': '≠',
                        '\\in': '∉',
                        '<': '≮',
                        '>': '≯',
                        '\\equiv': '≢',
                        '\\subset': '⊄',
                        '\\subseteq': '⊈',
                        '\\mid': '∤',
                        '\\sim': '≁',
                        '\\exists': '∄',
                        '\\leq': '≰',
                        '\\geq': '≱',
                    };
                return operator(known[t] ?? `${operators.get(t.slice(1)) ?? t}\u0338`);
            },
            overline: (s) => element('mrow', [argument(s)], { class: 'overline' }),
            underline: (s) => element('mrow', [argument(s)], { class: 'underline' }),
            boxed: (s) => element('mrow', [argument(s)], { class: 'boxed' }),
            fbox: (s) => commands.boxed(s),
            cancel: (s) => element('mrow', [argument(s)], { class: 'cancel' }),
            phantom: (s) => element('mphantom', [argument(s)]),
            vphantom: (s) => element('mpadded', [element('mphantom', [argument(s)])], { width: '0' }),
            mathop: (s) => withLimits(argument(s)),
            mathbin: (s) => argument(s),
            mathrel: (s) => argument(s),
            mathord: (s) => argument(s),
            mathopen: (s) => argument(s),
            mathclose: (s) => argument(s),
            pmod: (s) =>
                element('mrow', [
                    space('.5'),
                    operator('(', { stretchy: 'false' }),
                    element('mi', ['mod']),
                    space('.3333'),
                    argument(s),
                    operator(')', { stretchy: 'false' }),
                ]),
            bmod: () => operator('mod', { lspace: '.2222em', rspace: '.2222em' }),
            mod: () => operator('mod', { lspace: '.5em', rspace: '.3333em' }),
            xrightarrow: (s) => arrow('→', s),
            xleftarrow: (s) => arrow('←', s),
            xRightarrow: (s) => arrow('⇒', s),
            color: (s) => {
                raw();
                return peek() === undefined ? element('mrow') : argument(s);
            },
            textcolor: (s) => {
                raw();
                return argument(s);
            },
            mathchoice: () => wrong('mathchoice'),
            tag: () => element('mtext', [`\u2003(${raw()})`]),
            label: () => {
                raw();
                return element('mrow');
            },
            hspace: () => {
                raw();
                return space('.5');
            },
            'hspace*': () => commands.hspace(),
            kern: () => wrong('kern'),
            mkern: () => wrong('mkern'),
        };
        function arrow(c, style) {
            const under = accept('[') ? row(sequence(style, (t) => t === ']')) : null;
            if (under) expect(']');
            const over = argument(style),
                base = operator(c, { stretchy: 'true' });
            const pad = (e) => element('mpadded', [e], { width: '+.8em', lspace: '.4em' });
            return under ? element('munderover', [base, pad(under), pad(over)]) : element('mover', [base, pad(over)]);
        }

        function command(name, style) {
            if (Object.hasOwn(commands, name))
                return commands[name](
                    ['text', 'mbox', 'hbox', 'emph'].includes(name) || /^text[a-z]{2}$|^textnormal$/.test(name)
                        ? name
                        : style,
                );
            if (letters.has(name)) return identifier(letters.get(name), style);
            if (Object.hasOwn(styleOf, name)) return argument(styleOf[name]);
            if (signs.has(name)) return element('mi', [styled(signs.get(name), style)], { mathvariant: 'normal' });
            if (large.has(name))
                return withLimits(operator(large.get(name), { movablelimits: 'true', largeop: 'true' }));
            if (integrals.has(name)) return operator(integrals.get(name), { largeop: 'true', stretchy: 'false' });
            if (functions.has(name)) return element('mi', [name]);
            if (limits.has(name))
                return withLimits(
                    operator(name.replace(/^(lim|arg)(?=[a-z])/, '$1\u2009'), {
                        movablelimits: 'true',
                        form: 'prefix',
                        lspace: '0',
                        rspace: '0',
                    }),
                );
            if (spaces.has(name)) return space(spaces.get(name));
            if (name === ' ' || name === 'space') return space('.3333');
            if (/^[bB]igg?[lrm]?$/.test(name)) {
                const size = { b: 1.2, B: 1.8, bg: 2.4, Bg: 3 }[name[0] + (name.includes('gg') ? 'g' : '')];
                const form = name.endsWith('l') ? 'prefix' : name.endsWith('r') ? 'postfix' : 'infix',
                    lines = `${size}em`;
                return operator(delimiter(), {
                    form,
                    stretchy: 'true',
                    minsize: lines,
                    maxsize: lines,
                    lspace: '0',
                    rspace: '0',
                });
            }
            if (accents.has(name)) {
                const isWide = /^(?:wide|over)/.test(name),
                    made = element(
                        'mover',
                        [argument(style), operator(accents.get(name), { stretchy: String(isWide), accent: 'true' })],
                        { accent: 'true' },
                    );
                return name === 'overbrace' ? withLimits(made) : made;
            }
            if (below.has(name)) {
                const made = element('munder', [argument(style), operator(below.get(name), { stretchy: 'true' })], {
                    accentunder: 'true',
                });
                return name === 'underbrace' ? withLimits(made) : made;
            }
            if (operators.has(name))
                return operator(
                    operators.get(name),
                    /arrow|^(?:l?vert|mid|parallel|Vert)$/.test(name) ? { stretchy: 'false' } : {},
                );
            if (delimiters.has(name)) return operator(delimiters.get(name), { stretchy: 'false' });
            return wrong(`the command ${name}`);
        }

        const isTop = (t) => t === '\\\\' || t === '&';
        const lines = [sequence('', isTop)];
        while (peek() === '\\\\') {
            /* line breaks without an environment */
            at++;
            lines.push(sequence('', isTop));
        }
        if (peek() !== undefined) wrong(`${peek()} in a wrong place`);
        if (lines.length === 1 || !isDisplay) return lines.flat();
        return [
            element(
                'mtable',
                lines.map((l) => element('mtr', [element('mtd', l)])),
                { displaystyle: 'true', class: 'stack' },
            ),
        ];
    }

    /* The formula as an element with its source as annotation; null: show it as written. */
    function make(source, isDisplay) {
        if (source.length > longest) return null;
        try {
            const body = element('mrow', parse(source.trim(), isDisplay));
            const annotation = element('annotation', [source.trim()], { encoding: 'application/x-tex' });
            return element('math', [element('semantics', [body, annotation])], {
                display: isDisplay ? 'block' : 'inline',
            });
        } catch (e) {
            if (e instanceof SyntaxError) return null;
            throw e;
        }
    }
    return { make };
})();
