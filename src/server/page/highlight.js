/* highlight.js: syntax highlighting. A language is one regular expression whose named groups are
 * the classes (t-comment, t-string, ...), tried in order at each place. A `word` becomes a keyword,
 * a constant, a type or a function, depending on the language's lists and on the text that
 * follows. */
const highlight = (() => {
    const longest = 200000; /* characters; longer code is shown without colours */
    const set = (words) => new Set(words.split(/\s+/));

    const slashes = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
        hash = String.raw`(?<![^\s])#[^\n]*`;
    const double = String.raw`"(?:\\[\s\S]|[^"\\\n])*"?`,
        single = String.raw`'(?:\\[\s\S]|[^'\\\n])*'?`,
        ticks = '`(?:\\\\[\\s\\S]|[^`\\\\])*`?';
    const triple = String.raw`(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$))`;
    const number = String.raw`(?<![\w$])(?:0[xX][\da-fA-F_']+|0[bB][01_']+|0[oO][0-7_]+|(?:\d[\d_']*)?\.?\d[\d_]*(?:[eE][+-]?\d+)?)\w*`;
    const word = String.raw`[\p{L}_$][\p{L}\p{N}_$]*`;
    const constants = 'true false null nil None True False NULL nullptr undefined NaN Infinity this self super';

    /* A language that consists of words; parts that are not given are absent from the language. */
    function wordy({
        comment,
        string = `${double}|${single}`,
        meta,
        type,
        variable,
        keywords,
        types = '',
        ignoreCase = false,
        words = word,
    }) {
        const groups = { comment, string, meta, type, variable, number, word: words };
        const source = Object.entries(groups)
            .filter(([, g]) => g)
            .map(([name, g]) => `(?<${name}>${g})`)
            .join('|');
        return {
            pattern: new RegExp(source, ignoreCase ? 'gmiu' : 'gmu'),
            keywords: set(keywords),
            types: set(types),
            constants: set(constants),
            ignoreCase,
        };
    }
    const grouped = (groups) => ({
        pattern: new RegExp(
            Object.entries(groups)
                .map(([name, g]) => `(?<${name}>${g})`)
                .join('|'),
            'gmu',
        ),
    });

    const cWords =
        'auto break case const continue default do else enum extern for goto if inline register restrict return sizeof static struct switch typedef union volatile while _Atomic _Static_assert _Generic static_assert alignas';
    const cTypes =
        'char double float int long short signed unsigned void bool size_t ssize_t ptrdiff_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t FILE';
    const cppWords = `${cWords} alignof and catch class co_await co_return co_yield concept consteval constexpr const_cast decltype delete dynamic_cast explicit export final friend import module mutable namespace new noexcept not operator or override private protected public reinterpret_cast requires static_cast template thread_local throw try typename using virtual __global__ __device__ __host__ __shared__ __restrict__ __constant__`;
    const jsWords =
        'as async await break case catch class const continue debugger default delete do else export extends finally for from function get if import in instanceof let new of return set static switch throw try typeof var void while with yield';
    const preprocessor = String.raw`^[ \t]*#[ \t]*\w+(?:[ \t]*<[^>\n]*>)?`;
    const makeC = (keywords) =>
        wordy({
            comment: slashes,
            meta: preprocessor,
            keywords,
            types: cTypes,
            string: `(?:u8|[uUL])?(?:R"\\((?:[\\s\\S]*?)\\)"|${double}|${single})`,
        });
    const makeJs = (more) =>
        wordy({
            comment: slashes,
            string: `${double}|${single}|${ticks}`,
            meta: String.raw`(?<=[=(,:?&|;]\s*|return\s+)\/(?![*\/\s])(?:\\.|\[(?:\\.|[^\]\n])*\]|[^\/\n\\])+\/[dgimsuvy]*|@\w+`,
            keywords: `${jsWords} ${more}`,
        });
    const sqlWords =
        'add all alter and as asc begin between by case cast check column commit constraint create cross database default delete desc distinct drop else end except exists explain foreign from full function group having if in index inner insert intersect into is join key left like limit not null offset on or order outer over partition primary references returning right rollback select set table then trigger union unique update using values view when where window with';

    const languages = {
        c: makeC(cWords),
        cpp: makeC(cppWords),
        csharp: wordy({
            comment: slashes,
            string: `[$@]*(?:${double})|${single}`,
            meta: String.raw`^[ \t]*#\w+|^[ \t]*\[[^\]\n]+\]`,
            types: `${cTypes} string object decimal byte dynamic`,
            keywords:
                'abstract as async await base break case catch class const continue default delegate do else enum event explicit extern finally fixed for foreach get goto if implicit in init interface internal is lock namespace new operator out override params private protected public readonly record ref return sealed set sizeof stackalloc static struct switch throw try typeof unchecked unsafe using value var virtual when where while with yield',
        }),
        java: wordy({
            comment: slashes,
            string: `${triple}|${double}|${single}`,
            meta: String.raw`@\w+`,
            types: 'boolean byte char double float int long short void',
            keywords:
                'abstract assert break case catch class const continue default do else enum extends final finally for goto if implements import instanceof interface native new non-sealed package permits private protected public record return sealed static strictfp switch synchronized throw throws transient try var volatile while yield',
        }),
        kotlin: wordy({
            comment: slashes,
            string: `${triple}|${double}|${single}`,
            meta: String.raw`@\w+`,
            keywords:
                'abstract actual annotation as break by catch class companion const constructor continue crossinline data do else enum expect external final finally for fun get if import in infix init inline inner interface internal is lateinit noinline object open operator out override package private protected public reified return sealed set suspend tailrec throw try typealias val var vararg when where while',
        }),
        swift: wordy({
            comment: slashes,
            string: `${triple}|${double}`,
            meta: String.raw`[@#]\w+`,
            keywords:
                'actor any as associatedtype async await break case catch class continue convenience default defer deinit do else enum extension fallthrough fileprivate final for func get guard if import in indirect init inout internal is lazy let mutating nonisolated open operator override private protocol public repeat required rethrows return set some static struct subscript switch throw throws try typealias unowned var weak where while',
        }),
        go: wordy({
            comment: slashes,
            string: `${double}|${single}|${ticks}`,
            types: 'any bool byte complex64 complex128 error float32 float64 int int8 int16 int32 int64 rune string uint uint8 uint16 uint32 uint64 uintptr',
            keywords:
                'break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var iota make new append len cap',
        }),
        rust: wordy({
            comment: slashes,
            string: String.raw`b?r#*"[\s\S]*?"#*|b?"(?:\\[\s\S]|[^"\\])*"?|b?'(?:\\[^\n']+|[^'\\\n])'`,
            meta: String.raw`#!?\[[^\]\n]*\]|'[a-z_]\w*|\b\w+!(?=[\s([{])`,
            types: 'bool char f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize',
            keywords:
                'as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return static struct trait type union unsafe use where while',
        }),
        zig: wordy({
            comment: String.raw`\/\/[^\n]*`,
            meta: String.raw`@\w+`,
            types: 'bool f16 f32 f64 i8 i16 i32 i64 isize u8 u16 u32 u64 usize void anytype type',
            keywords:
                'align and asm break catch comptime const continue defer else enum errdefer error export extern fn for if inline noalias or orelse packed pub return struct suspend switch test threadlocal try union unreachable usingnamespace var volatile while',
        }),
        javascript: makeJs(''),
        typescript: makeJs(
            'abstract declare enum implements infer interface is keyof namespace never private protected public readonly satisfies type unknown any string number boolean',
        ),
        python: wordy({
            comment: '#[^\\n]*',
            string: `[rRbBfFuU]{0,2}(?:${triple}|${double}|${single})`,
            meta: String.raw`^[ \t]*@[\w.]+`,
            types: 'bool bytes dict float frozenset int list object set str tuple type',
            keywords:
                'and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield',
        }),
        ruby: wordy({
            comment: hash,
            variable: String.raw`[@$]{1,2}\w+|(?<!:):\w+[?!]?`,
            keywords:
                'alias and begin break case class def defined? do else elsif end ensure for if in module next not or private protected public raise redo require require_relative rescue retry return then undef unless until when while yield attr_accessor attr_reader',
        }),
        php: wordy({
            comment: `${slashes}|${hash}`,
            variable: String.raw`\$\w+`,
            meta: String.raw`<\?(?:php|=)?|\?>`,
            keywords:
                'abstract and array as break case catch class clone const continue declare default do echo else elseif empty enum extends final finally fn for foreach function global goto if implements include include_once instanceof interface isset list match namespace new or print private protected public readonly require require_once return static switch throw trait try unset use var while yield',
        }),
        lua: wordy({
            comment: String.raw`--(?:\[\[[\s\S]*?(?:\]\]|$)|[^\n]*)`,
            string: String.raw`\[\[[\s\S]*?(?:\]\]|$)|${double}|${single}`,
            keywords:
                'and break do else elseif end for function goto if in local not or repeat return then until while',
        }),
        r: wordy({
            comment: '#[^\\n]*',
            keywords: 'break else for function if in next repeat return while library require TRUE FALSE NA',
        }),
        julia: wordy({
            comment: '#[^\\n]*',
            string: `${triple}|${double}`,
            meta: String.raw`@\w+`,
            keywords:
                'abstract baremodule begin break catch const continue do else elseif end export finally for function global if import in let local macro module mutable quote return struct try using where while',
        }),
        haskell: wordy({
            comment: String.raw`--[^\n]*|\{-[\s\S]*?(?:-\}|$)`,
            string: double,
            keywords:
                'case class data default deriving do else forall foreign if import in infix infixl infixr instance let module newtype of qualified then type where',
        }),
        sql: wordy({
            comment: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
            string: `${single}|${double}`,
            keywords: sqlWords,
            types: 'bigint blob boolean char date decimal double float int integer json jsonb numeric real serial text time timestamp uuid varchar',
            ignoreCase: true,
        }),
        shell: wordy({
            comment: hash,
            string: String.raw`"(?:\\[\s\S]|[^"\\])*"?|'[^']*'?`,
            variable: String.raw`\$(?:\w+|[@#?$!*-]|\{[^}\n]*\})`,
            meta: String.raw`^[$%>] (?=\S)|(?<=\s)--?[A-Za-z][\w-]*`,
            words: String.raw`[A-Za-z_][\w.-]*`,
            keywords:
                'if then else elif fi for while until do done case esac in function select time return exit break continue local export readonly declare typeset unset shift set source alias eval exec trap cd echo printf read test',
        }),
        powershell: wordy({
            comment: `<#[\\s\\S]*?(?:#>|$)|${hash}`,
            variable: String.raw`\$[\w:]+`,
            meta: String.raw`(?<=\s)-[A-Za-z]\w*`,
            words: String.raw`[A-Za-z_][\w-]*`,
            keywords:
                'begin break catch class continue data do dynamicparam else elseif end enum exit filter finally for foreach from function if in param process return switch throw trap try until using while',
            ignoreCase: true,
        }),
        makefile: wordy({
            comment: '#[^\\n]*',
            string: `${double}|${single}`,
            variable: String.raw`\$(?:\([^)\n]*\)|\{[^}\n]*\}|[@<^?*+%])`,
            type: String.raw`^[\w./%$(){} -]+(?=:(?!=))`,
            keywords: 'define else endef endif export ifdef ifeq ifndef ifneq include override',
        }),
        dockerfile: wordy({
            comment: '^#[^\\n]*',
            variable: String.raw`\$(?:\w+|\{[^}\n]*\})`,
            keywords:
                'ADD ARG AS CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL USER VOLUME WORKDIR',
        }),
        cmake: wordy({
            comment: '#[^\\n]*',
            string: double,
            variable: String.raw`\$(?:ENV)?\{[^}\n]*\}`,
            keywords:
                'if elseif else endif foreach endforeach while endwhile function endfunction macro endmacro return set include',
            ignoreCase: true,
        }),
        json: grouped({
            attribute: String.raw`"(?:\\.|[^"\\\n])*"(?=\s*:)`,
            string: String.raw`"(?:\\.|[^"\\\n])*"?`,
            comment: slashes,
            number: String.raw`-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?`,
            constant: 'true|false|null',
        }),
        yaml: grouped({
            comment: hash,
            attribute: String.raw`(?<=^\s*(?:- +)*)[\w."'\/-][^:#\n]*?(?=:(?:\s|$))`,
            string: `${double}|${single}`,
            meta: String.raw`^(?:---|\.\.\.)$|[&*!][\w!-]+`,
            number: String.raw`(?<=[\s\[,])-?\d+(?:\.\d+)?(?=\s*(?:$|[,\]}#]))`,
            constant: String.raw`\b(?:true|false|null|yes|no|on|off)\b`,
        }),
        toml: grouped({
            comment: String.raw`(?<![^\s])[#;][^\n]*`,
            type: String.raw`^\s*\[\[?[^\]\n]*\]?\]`,
            attribute: String.raw`^\s*[\w."-]+(?=\s*=)`,
            string: `${triple}|${double}|${single}`,
            number: String.raw`\b\d[\d_.:TZ-]*\b`,
            constant: String.raw`\b(?:true|false)\b`,
        }),
        css: grouped({
            comment: String.raw`\/\*[\s\S]*?(?:\*\/|$)`,
            string: `${double}|${single}`,
            keyword: String.raw`@[\w-]+|!important`,
            attribute: String.raw`(?<=[{;]\s*)[\w-]+(?=\s*:)`,
            variable: String.raw`--[\w-]+|\$[\w-]+`,
            number: String.raw`#[\da-fA-F]{3,8}\b|(?<![\w-])-?\d*\.?\d+(?:%|[a-z]+)?`,
            function: String.raw`[\w-]+(?=\()`,
            type: String.raw`[.#][A-Za-z][\w-]*|::?[\w-]+`,
        }),
        diff: grouped({
            meta: String.raw`^(?:@@.*|diff .*|index .*|---.*|\+\+\+.*)$`,
            added: String.raw`^[+>].*$`,
            deleted: String.raw`^[-<].*$`,
        }),
        latex: grouped({
            comment: String.raw`(?<!\\)%[^\n]*`,
            attribute: String.raw`(?<=\\(?:begin|end)\{)[^}\n]*`,
            keyword: String.raw`\\(?:[A-Za-z]+\*?|.)`,
            string: String.raw`\$[^$\n]*\$`,
            meta: String.raw`[{}&]`,
        }),
        markdown: grouped({
            keyword: String.raw`^#{1,6} .*$`,
            string: '`[^`\\n]*`',
            meta: String.raw`^\s*(?:[-*+]|\d+\.|>)(?= )|^(?:\x60{3,}|~{3,}).*$`,
            type: String.raw`\*\*[^*\n]+\*\*`,
            attribute: String.raw`\[[^\]\n]*\]\([^)\n]*\)`,
        }),
        html: grouped({
            comment: String.raw`<!--[\s\S]*?(?:-->|$)|<![^>\n]*>|<\?[\s\S]*?\?>`,
            tag: String.raw`<\/?[A-Za-z](?:"[^"]*"|'[^']*'|[^'">])*\/?>?`,
            constant: String.raw`&#?\w+;`,
        }),
    };
    const inTag = grouped({
        keyword: String.raw`(?<=^<\/?)[\w:.-]+`,
        string: String.raw`"[^"]*"?|'[^']*'?`,
        attribute: String.raw`[\w:@.\-]+(?=\s*=)`,
    }).pattern;

    const aliases = {
        h: 'c',
        'c++': 'cpp',
        cc: 'cpp',
        cxx: 'cpp',
        hpp: 'cpp',
        cu: 'cpp',
        cuda: 'cpp',
        hip: 'cpp',
        objc: 'cpp',
        'c#': 'csharp',
        cs: 'csharp',
        kt: 'kotlin',
        golang: 'go',
        rs: 'rust',
        js: 'javascript',
        jsx: 'javascript',
        mjs: 'javascript',
        cjs: 'javascript',
        node: 'javascript',
        ts: 'typescript',
        tsx: 'typescript',
        py: 'python',
        python3: 'python',
        rb: 'ruby',
        sh: 'shell',
        bash: 'shell',
        zsh: 'shell',
        console: 'shell',
        terminal: 'shell',
        'shell-session': 'shell',
        fish: 'shell',
        ps1: 'powershell',
        pwsh: 'powershell',
        jl: 'julia',
        hs: 'haskell',
        make: 'makefile',
        mk: 'makefile',
        docker: 'dockerfile',
        json5: 'json',
        jsonc: 'json',
        jsonl: 'json',
        yml: 'yaml',
        ini: 'toml',
        conf: 'toml',
        cfg: 'toml',
        scss: 'css',
        less: 'css',
        patch: 'diff',
        tex: 'latex',
        md: 'markdown',
        xml: 'html',
        svg: 'html',
        xhtml: 'html',
        vue: 'html',
        htm: 'html',
        postgresql: 'sql',
        mysql: 'sql',
        sqlite: 'sql',
    };
    const names = {
        cpp: 'C++',
        c: 'C',
        csharp: 'C#',
        javascript: 'JavaScript',
        typescript: 'TypeScript',
        php: 'PHP',
        sql: 'SQL',
        json: 'JSON',
        yaml: 'YAML',
        html: 'HTML',
        css: 'CSS',
        latex: 'LaTeX',
        toml: 'TOML',
        cmake: 'CMake',
        powershell: 'PowerShell',
        r: 'R',
    };
    const keyOf = (language, own = language.toLowerCase()) => (Object.hasOwn(aliases, own) ? aliases[own] : own);

    /* The label of a block of code. */
    function nameOf(language) {
        if (!language) return 'Text';
        const key = keyOf(language);
        return Object.hasOwn(names, key)
            ? names[key]
            : Object.hasOwn(languages, key)
              ? key[0].toUpperCase() + key.slice(1)
              : language;
    }

    function wordClass(language, text, after) {
        const known = language.ignoreCase ? text.toLowerCase() : text;
        if (language.keywords.has(known)) return 'keyword';
        if (language.constants.has(text)) return 'constant';
        if (language.types.has(known)) return 'type';
        if (/^\s*\(/.test(after)) return 'function';
        return /^\p{Lu}[\p{L}\p{N}]*\p{Ll}/u.test(text) ? 'type' : '';
    }
    const span = (name, text) => {
        const e = document.createElement('span');
        e.className = `t-${name}`;
        e.textContent = text;
        return e;
    };
    function split(text, pattern, make) {
        const out = [];
        let at = 0;
        for (const m of text.matchAll(pattern)) {
            if (!m[0]) continue;
            const name = Object.keys(m.groups).find((g) => m.groups[g] !== undefined);
            if (m.index > at) out.push(text.slice(at, m.index));
            out.push(...make(name, m[0], m.index + m[0].length));
            at = m.index + m[0].length;
        }
        out.push(text.slice(at));
        return out;
    }

    /* Nodes and texts of the highlighted code. */
    function highlight(code, name) {
        const key = keyOf(name);
        const language = Object.hasOwn(languages, key) && code.length <= longest ? languages[key] : null;
        if (!language) return [code];
        return split(code, language.pattern, (group, text, end) => {
            if (group === 'tag') return split(text, inTag, (g, t) => [span(g, t)]);
            const as = group === 'word' ? wordClass(language, text, code.slice(end, end + 8)) : group;
            return [as ? span(as, text) : text];
        });
    }
    return Object.assign(highlight, { nameOf });
})();
