// The answers that the page receives instead of a model's answers.

// Pieces of an answer as the server streams them.
export function stream(pieces, reasoning = '') {
    const event = (delta, more = {}) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null, ...more }] })}\n\n`;
    const timings = { prompt_n: 9, cache_n: 1, predicted_n: 20, predicted_per_second: 12.5 };
    return event({ role: 'assistant', reasoning_content: reasoning }) + pieces.map((content) => event({ content })).join('') +
        `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], timings })}\n\ndata: [DONE]\n\n`;
}

export const text = `## Title

Some **bold**, *italic*, \`a * b\`, snake_case_name and 2 * 3 * 4.

- one
- two
  - nested

> quoted

| a | b |
|---|---:|
| 1 | 22 |

\`\`\`c
if (a < b)
    *p = 1;
\`\`\`

1. first
2. second
`;

export const hostile = `<img src=x onerror="window.hit=1"><script>window.hit=2</script><svg onload="window.hit=3">
<iframe srcdoc="<script>parent.hit=4</script>"></iframe><base href="http://127.0.0.1:9/"><style>*{display:none}</style>

[a](javascript:window.hit=5) [b](JaVaScRiPt:window.hit=6) [c](data:text/html,<script>window.hit=7</script>) [d](vbscript:x)
![e](http://127.0.0.1:9/pixel.png) ![f](javascript:window.hit=8) [g]( javascript:window.hit=9 ) <javascript:window.hit=10>
[h](java&#115;cript:window.hit=11) [i](\\javascript:window.hit=12) [fine](https://example.org/"onmouseover="window.hit=13)

# <img src=x onerror=window.hit=14>
- <a href="javascript:window.hit=15" onclick="window.hit=16">x</a>

| <img src=x onerror=window.hit=17> | b |
|---|---|
| \`<script>window.hit=18</script>\` | c |

\`\`\`"><img src=x onerror=window.hit=19>
</code></pre><script>window.hit=20</script>
\`\`\`

<form action="http://127.0.0.1:9/"><button>x</button></form>`;
