#!/usr/bin/env node
/* A conversation in the terminal: chat.mjs MODEL.gguf [TOKENS OF AN ANSWER]
 *
 * The chat template turns the whole conversation into a prompt each time, and the session keeps the
 * tokens that it has evaluated already. Ctrl-C stops an answer, Ctrl-D ends the program. */
import readline from 'node:readline';
import * as pi from 'powerinfer';

async function makeTemplate(model) {
    try {
        return await pi.ChatTemplate.create(model);
    } catch (error) {
        if (error.status !== pi.PI_ERR_NOT_FOUND) throw error;
        return pi.ChatTemplate.create(model, { name: pi.PI_CHAT_TEMPLATE_PLAIN });
    }
}

/* The tokens of a rendered prompt, which may begin with BOS already. */
function tokenize(model, prompt) {
    const tokens = model.tokenize(prompt, pi.PI_TOKENIZE_SPECIAL);
    if (tokens[0] === model.get_info().token_bos) return tokens;
    return model.tokenize(prompt, pi.PI_TOKENIZE_SPECIAL | pi.PI_TOKENIZE_BOS);
}

/* max_tokens -1: until the answer ends. */
async function main(file, max_tokens = -1) {
    const model = await pi.Model.open(file);
    const context = await pi.Context.create(model);
    const session = await pi.Session.create(context, Math.min(model.get_info().n_ctx_train, 4096));
    const template = await makeTemplate(model);
    const lines = readline.createInterface({ input: process.stdin, output: process.stdout });
    let stop = null;
    const interrupt = () => (stop ? stop.abort() : lines.close());
    lines.on('SIGINT', interrupt);
    process.on('SIGINT', interrupt);
    const messages = [];
    let evaluated = []; // the tokens in the session
    lines.setPrompt('> ');
    lines.prompt();
    for await (const content of lines) {
        messages.push({ role: 'user', content });
        const prompt = template.render({ messages, add_generation_prompt: true });
        const tokens = tokenize(model, prompt);
        const answer = [];
        let same = 0;
        while (same < Math.min(evaluated.length, tokens.length - 1) &&
               evaluated[same] === tokens[same]) same++;
        session.rewind(session.rewind_point(same));
        stop = new AbortController();
        try {
            await context.generate(session, {
                tokens,
                max_tokens: Number(max_tokens),
                signal: stop.signal,
                piece(token, text) {
                    answer.push({ token, text });
                    process.stdout.write(text);
                },
            });
        } catch (error) {
            if (error.name !== 'AbortError') throw error;
        }
        stop = null;
        process.stdout.write('\n');
        const generated = answer.map((a) => a.token).filter((token) => token >= 0);
        evaluated = [...tokens, ...generated].slice(0, session.length());
        messages.push({ role: 'assistant', content: answer.map((a) => a.text).join('') });
        lines.prompt();
    }
}

if (process.argv.length !== 3 && process.argv.length !== 4) {
    console.error('usage: chat.mjs MODEL.gguf [TOKENS]');
    process.exit(2);
}
try {
    await main(...process.argv.slice(2));
} catch (error) {
    console.error(error.message);
    process.exitCode = 1;
}
