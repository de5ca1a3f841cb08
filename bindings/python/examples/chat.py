#!/usr/bin/env python3
"""A conversation in the terminal: chat.py MODEL.gguf [TOKENS OF AN ANSWER]

The chat template turns the whole conversation into a prompt each time, and the session keeps the
tokens that it has evaluated already. Ctrl-C stops an answer, Ctrl-D ends the program."""
import sys

import powerinfer as pi


def make_template(model):
    try:
        return pi.ChatTemplate(model)
    except pi.Error as error:
        if error.status != pi.PI_ERR_NOT_FOUND:
            raise
        return pi.ChatTemplate(model, name=pi.PI_CHAT_TEMPLATE_PLAIN)


def tokenize(model, prompt):
    """The tokens of a rendered prompt, which may begin with BOS already."""
    tokens = model.tokenize(prompt, pi.PI_TOKENIZE_SPECIAL)
    if tokens[:1] == [model.get_info().token_bos]:
        return tokens
    return model.tokenize(prompt, pi.PI_TOKENIZE_SPECIAL | pi.PI_TOKENIZE_BOS)


def main():
    if len(sys.argv) not in (2, 3):
        print("usage: chat.py MODEL.gguf [TOKENS]", file=sys.stderr)
        return 2
    max_tokens = int(sys.argv[2]) if len(sys.argv) > 2 else -1  # -1: until the answer ends
    try:
        model = pi.Model(sys.argv[1])
        context = pi.Context(model)
        session = pi.Session(context, min(model.get_info().n_ctx_train, 4096))
        template = make_template(model)
    except pi.Error as error:
        print(error, file=sys.stderr)
        return 1
    messages, evaluated = [], []  # evaluated: the tokens in the session
    while True:
        try:
            messages.append({"role": "user", "content": input("> ")})
        except EOFError:
            return 0
        prompt = template.render({"messages": messages, "add_generation_prompt": True})
        tokens, answer = tokenize(model, prompt), []

        def piece(token, text):
            answer.append((token, text))
            print(text, end="", flush=True)

        same = 0
        while same < min(len(evaluated), len(tokens) - 1) and evaluated[same] == tokens[same]:
            same += 1
        session.rewind(session.rewind_point(same))
        try:
            context.generate(session, tokens=tokens, max_tokens=max_tokens, piece=piece)
        except KeyboardInterrupt:
            pass
        except pi.Error as error:
            print(error, file=sys.stderr)
            messages.pop()
            continue
        print()
        evaluated = (tokens + [token for token, _ in answer if token >= 0])[:session.length()]
        messages.append({"role": "assistant", "content": "".join(text for _, text in answer)})


if __name__ == "__main__":
    sys.exit(main())
