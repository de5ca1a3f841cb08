"""Tests of bindings/python: python3 test_python.py TOP PROGRAM FOLDER, with $POWERINFER_LIBRARY."""
import ctypes
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

TOP, PROGRAM, FOLDER = sys.argv[1:4]
sys.path.insert(0, os.path.join(TOP, "bindings", "python"))
import powerinfer as pi  # noqa: E402

MODEL = os.path.join(TOP, "models", "novella-7m.q8_0.powerinfer.gguf")
PROMPT = "The old lighthouse keeper"
GENERATE = os.path.join(TOP, "bindings", "generate.py")


class Headers(unittest.TestCase):
    """The binding says what the headers say."""

    def test_sections_are_current(self):
        subprocess.run([sys.executable, GENERATE, "--check"], check=True)

    def test_a_changed_header_is_found(self):
        tree = os.path.join(FOLDER, "tree")
        shutil.rmtree(tree, ignore_errors=True)
        for part in ("bindings", "include", "src/base"):
            shutil.copytree(os.path.join(TOP, part), os.path.join(tree, part))
        copy = os.path.join(tree, "bindings", "generate.py")
        header = os.path.join(tree, "include", "powerinfer_sampler.h")
        with open(header, encoding="utf-8") as f:
            text = f.read()
        for old, new in (("    float temp; ", "    double temp; "),  # a type
                         ("PI_SAMPLER_CHAIN_MAX = 32", "PI_SAMPLER_CHAIN_MAX = 33"),
                         ("int32_t pi_sampler_sample(", "int64_t pi_sampler_sample("),
                         ("    PI_SAMPLER_TOP_K,\n", "")):
            self.assertIn(old, text)
            with open(header, "w", encoding="utf-8") as f:
                f.write(text.replace(old, new))
            run = subprocess.run([sys.executable, copy, "--check"], stderr=subprocess.PIPE)
            self.assertEqual(run.returncode, 1, new)
            self.assertIn(b"the headers changed", run.stderr)

    def test_layout_is_the_compilers(self):
        layout = json.loads(subprocess.run([sys.executable, GENERATE, "--layout"], check=True,
                                           stdout=subprocess.PIPE).stdout)
        self.assertGreater(len(layout["constants"]), 100)
        for name, value in layout["constants"].items():
            self.assertEqual(getattr(pi, name), value, name)
        structs = layout["structs"]
        self.assertGreater(len(structs), 50)
        self.assertEqual(ctypes.sizeof(pi.tm), structs.pop("struct tm")["size"])
        for name, struct in structs.items():
            of = getattr(pi, name)
            self.assertEqual(ctypes.sizeof(of), struct["size"], name)
            self.assertEqual([f for f, *_ in of._fields_], list(struct["fields"]), name)
            for field, (offset, size) in struct["fields"].items():
                place = getattr(of, field)
                self.assertEqual((place.offset, place.size), (offset, size), name + "." + field)

    def test_classes_use_every_function(self):
        headers = [os.path.join(TOP, "include", n) for n in os.listdir(TOP + "/include")]
        declared = set()
        for path in headers + [os.path.join(TOP, "src", "base", "powerinfer_status.h")]:
            with open(path, encoding="utf-8") as f:
                declared |= set(re.findall(r"^PI_API [^;(]*?(pi_\w+)\(", f.read(), re.M))
        self.assertGreater(len(declared), 100)
        # The defaults of options are used through a table; a context knows its model.
        declared = {n for n in declared if not n.endswith("_default_options")}
        declared.remove("pi_context_model")
        for path, begin in (("python/powerinfer.py", "# ---- end of the generated section"),
                            ("node/index.js", "import")):
            with open(os.path.join(TOP, "bindings", path), encoding="utf-8") as f:
                text = f.read().split(begin, 1)[1]
            unused = [n for n in sorted(declared) if not re.search(r"\b%s\b" % n, text)]
            self.assertEqual(unused, [], path)


class WithModel(unittest.TestCase):
    def setUp(self):
        self.model = pi.Model(MODEL)
        self.context = self.make_context()
        self.session = pi.Session(self.context, 512)
        self.greedy = pi.Sampler(self.model, temp=0)

    def make_context(self, **options):
        return pi.Context(self.model, device=pi.PI_DEVICE_CPU, n_threads=1, **options)

    def generate(self, **options):
        return self.context.generate(self.session, **{"prompt": PROMPT, "max_tokens": 24,
                                                      "sampler": self.greedy, **options})


class Text(WithModel):
    def test_text_is_that_of_run(self):
        expected = subprocess.run(
            [PROGRAM, "run", "-q", "-m", MODEL, "-p", PROMPT, "-n", "24", "--temp", "0",
             "--device", "cpu"], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
        self.assertGreater(len(expected), 40)
        result = self.generate()
        self.assertEqual(result.text.strip(), expected)
        self.assertEqual((result.stop, result.n_tokens), (pi.PI_STOP_LENGTH, 24))
        self.assertEqual(len(result.tokens), 24)
        self.session.rewind(0)
        pieces = list(self.context.stream(self.session, prompt=PROMPT, max_tokens=24,
                                          sampler=pi.Sampler(self.model, temp=0)))
        self.assertGreater(len(pieces), 10)
        self.assertEqual("".join(pieces).strip(), expected)

        # The loops of the headers: forward and sample, and Generation.
        self.session.rewind(0)
        tokens, text = self.model.tokenize(PROMPT), []
        generation = pi.Generation(self.model, pi.Sampler(self.model, temp=0), max_tokens=24)
        sampler = pi.Sampler(self.model, temp=0)
        for token in tokens:
            sampler.accept(token)
        released = None
        while not released or released.stop == pi.PI_STOP_NONE:
            self.context.forward([{"session": self.session, "tokens": tokens,
                                   "logits": pi.PI_LOGITS_LAST}])
            logits = self.context.logits()
            sampled = generation.sample(logits)
            self.assertEqual(sampler.sample(list(logits)), sampled.token)
            released = generation.accept(sampled)
            text.append(released.text)
            tokens = [sampled.token]
        self.assertEqual("".join(text).strip(), expected)
        self.assertEqual(released.stop, pi.PI_STOP_LENGTH)

    def test_options(self):
        result = self.generate(stops=["house"], keep_stop=True)
        self.assertEqual((result.stop, result.text), (pi.PI_STOP_TEXT, " of the house"))
        self.session.rewind(0)
        banned = [{"token": result.tokens[-1], "bias": float("-inf")}]
        other = self.generate(sampler=pi.Sampler(
            self.model, temp=0, logit_bias=banned, dry_breakers=["\n", "."],
            samplers=[pi.PI_SAMPLER_TOP_K, pi.PI_SAMPLER_TEMPERATURE]))
        self.assertNotIn(result.tokens[-1], other.tokens)
        self.session.rewind(0)
        ids = self.model.tokenize(PROMPT)
        self.assertEqual(self.generate(prompt=None, tokens=ids, max_tokens=3).tokens,
                         result.tokens[:3])
        with self.assertRaisesRegex(TypeError, "pi_sampler_options has no field warmth"):
            pi.Sampler(self.model, warmth=1)
        with self.assertRaises(TypeError):
            pi.Sampler(self.model, temp="hot")
        changed = pi.Model(MODEL, overrides=[{"key": "llama.context_length",
                                              "type": pi.PI_VALUE_INT, "integer": 512}])
        self.assertEqual(changed.get_info().n_ctx_train, 512)

    def test_tokens_and_metadata(self):
        text = "naïve \u0000 日本 <s>"
        tokens = self.model.tokenize(text, 0)
        self.assertEqual(self.model.detokenize(tokens), text)
        special = self.model.tokenize("<s>", pi.PI_TOKENIZE_SPECIAL)
        self.assertEqual(special, [self.model.token(pi.PI_TOKEN_BOS)])
        self.assertEqual(self.model.token_text(special[0], True), b"<s>")
        self.assertTrue(self.model.token_is_end(self.model.get_info().token_eos))
        keys = [self.model.metadata_key(i) for i in range(self.model.n_metadata())]
        self.assertIn("general.architecture", keys)
        self.assertEqual(self.model.metadata("general.architecture"), "llama")
        self.assertGreater(len(self.model.metadata("tokenizer.ggml.tokens")), 4096)

    def test_model_in_memory(self):
        with open(MODEL, "rb") as f:
            data = f.read()
        for options in ({}, {"no_mmap": True}):
            with pi.Model.open_memory(data, **options) as model:
                with pi.Context(model, n_threads=1, device=pi.PI_DEVICE_CPU) as context:
                    session = pi.Session(context, 64)
                    text = context.generate(session, prompt=PROMPT, max_tokens=3,
                                            sampler=pi.Sampler(model, temp=0)).text
            self.assertEqual(text, " of the house")

    def test_chat_template(self):
        request = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
        expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        self.assertEqual(pi.ChatTemplate(self.model, name="chatml").render(request), expected)
        self.assertEqual(pi.template(json.dumps(request), name="chatml"), expected)
        dated = pi.ChatTemplate(self.model, source="{{ strftime_now('%Y-%m-%d %a %j') }}")
        moment = time.strptime("2024-02-29", "%Y-%m-%d")
        self.assertEqual(dated.render(request, moment), "2024-02-29 Thu 060")
        self.assertIn("strftime_now", dated.source())
        with self.assertRaises(pi.Error) as raised:
            pi.ChatTemplate(self.model, source="{% if %}")
        self.assertEqual(raised.exception.status, pi.PI_ERR_FORMAT)
        self.assertEqual(pi.template_name(10 ** 6), None)

    def test_grammar(self):
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                  "additionalProperties": False}
        grammar = pi.Grammar.from_schema(self.model, schema)
        self.assertEqual(grammar.match('{"a": t'), (True, False))
        self.assertEqual(grammar.match('{"a": true}'), (True, True))
        self.assertEqual(grammar.match("[")[0], False)
        sampler = pi.Sampler(self.model, grammar=grammar, seed=1)
        second = grammar.retain()
        grammar.free()
        text = self.generate(sampler=sampler, max_tokens=100).text
        self.assertIn(json.loads(text)["a"], (True, False))
        self.assertEqual(sampler.grammar_progress(), (pi.PI_GRAMMAR_COMPLETE, None))
        self.assertGreater(second.memory(), 0)
        lazy = pi.Grammar(self.model, 'root ::= "x" data\n', trigger_words=["x"], schemas=[
            {"rule": "data", "schema": '{"uniqueItems": true}', "widen": True, "name": "f"}])
        self.assertEqual([w for w in lazy.widened() if "uniqueItems" in w], lazy.widened())
        self.assertEqual(len(lazy.widened()), 1)


class State(WithModel):
    def test_save_and_load(self):
        tokens = self.model.tokenize(PROMPT)
        expected = self.generate(max_tokens=8).tokens
        self.session.rewind(len(tokens))
        path = os.path.join(FOLDER, "saved.session")
        self.session.save(path, tokens)
        other = pi.Session(self.context, 64)
        self.assertEqual(other.load(path), tokens)
        state = self.session.get_state(tokens)
        with open(path, "rb") as f:
            self.assertEqual(state, f.read())
        third = pi.Session(self.context, 64)
        self.assertEqual(third.set_state(state), tokens)
        for session in (other, third):
            self.assertEqual(session.length(), len(tokens))
            session.rewind(len(tokens) - 1)
            got = self.context.generate(session, tokens=tokens, max_tokens=8,
                                        sampler=pi.Sampler(self.model, temp=0))
            self.assertEqual((got.tokens, got.n_cached), (expected, len(tokens) - 1))
        with self.assertRaises(pi.Error) as raised:
            third.set_state(state[:-1])
        self.assertEqual(raised.exception.status, pi.PI_ERR_FORMAT)

    def test_copy_remove_ranges(self):
        tokens = self.model.tokenize(PROMPT)
        self.context.forward([{"session": self.session, "tokens": tokens}])
        other = pi.Session(self.context, 64)
        other.copy(self.session, 5)
        self.assertEqual((other.length(), other.capacity()), (5, 64))
        other.remove(1, 3)
        self.assertEqual((other.length(), other.rewind_point(2)), (3, 2))
        data = self.session.get_range(0, 4)
        self.assertEqual((len(data), other.recurrent_bytes()), (other.range_bytes(4), 0))
        other.put_ranges(0, [{"data": data, "n_tokens": 4}], tokens[:4])
        self.assertEqual((other.length(), other.get_range(0, 4)), (4, data))
        self.assertEqual(other.state_id(), self.session.state_id())
        with self.assertRaises(ValueError):
            other.put_ranges(0, [{"data": data[:-1], "n_tokens": 4}], tokens[:4])
        with self.assertRaises(pi.Error) as raised:
            other.rewind(5)
        self.assertEqual(raised.exception.status, pi.PI_ERR_RANGE)

    def test_hidden_states_and_embeddings(self):
        tokens = self.model.tokenize(PROMPT)
        self.context.forward([{"session": self.session, "tokens": tokens,
                               "hidden": pi.PI_HIDDEN_ALL}])
        rows = [self.context.hidden(i) for i in range(self.context.hidden_rows())]
        mean = [sum(column) / len(rows) for column in zip(*rows)]
        for vectors in (self.context.embed([PROMPT, "x"], pi.PI_POOLING_MEAN),
                        self.context.embed([tokens], pi.PI_POOLING_MEAN)):
            self.assertEqual(len(vectors[0]), self.model.get_info().n_embd)
            cosine = sum(a * b for a, b in zip(vectors[0], mean)) / sum(b * b for b in mean)
            self.assertAlmostEqual(cosine, 1, delta=0.02)
        each = self.context.embed([tokens, tokens[:2]], pi.PI_POOLING_NONE)
        self.assertEqual(len(each), len(tokens) + 2)
        vector = pi.normalize(vectors[0])
        self.assertAlmostEqual(sum(v * v for v in vector), 1, places=4)
        self.assertEqual(self.context.logits_rows(), 0)
        with self.assertRaises(IndexError):
            self.context.logits(0)

    def test_what_a_context_reports(self):
        self.context.watch(4)
        self.context.trace_start(1)
        self.generate(max_tokens=4)
        self.assertIn(self.context.watched(), (3, 4))  # the prompt of 7 tokens may count
        activity = self.context.get_activity(0)
        self.assertEqual((activity.kind, len(activity.bins)), (pi.PI_ACTIVITY_NEURONS, 4))
        self.assertGreater(sum(activity.bins), 0)
        path = os.path.join(FOLDER, "trace.json")
        self.assertEqual([s.n_tokens for s in self.context.trace_write(path)], [7])
        with open(path, encoding="utf-8") as f:
            json.load(f)
        self.assertGreaterEqual(self.context.get_counters().tokens, 10)
        placement = self.context.get_placement()
        self.assertEqual((placement.device, placement.gpu_layers), ("cpu", 0))
        self.assertEqual(self.context.get_layer(0).n_hot, 0)
        with self.assertRaises(IndexError):
            self.context.get_layer(placement.n_layers)
        self.assertEqual(self.context.get_memory().budget, 0)
        self.assertEqual((self.context.threads(), self.context.batch()), (1, 512))
        self.assertEqual([d.backend for d in pi.devices()][-1], "sim")

    def test_speculation(self):
        prompt = "the house of the house of the house of"
        plain = self.generate(prompt=prompt).tokens
        with self.make_context(n_logits=64) as context:
            for drafter in ({"ngrams": True}, {"draft_context": self.context}):
                speculator = pi.Speculator(self.model, **drafter)
                session = pi.Session(context, 512)
                result = context.generate(session, prompt=prompt, max_tokens=24,
                                          sampler=pi.Sampler(self.model, temp=0),
                                          speculator=speculator)
                self.assertEqual(result.tokens, plain)
        self.assertGreater(result.n_accepted, 0)
        sampler = pi.Sampler(self.model, temp=0)
        speculator = pi.Speculator(self.model, ngrams=True, n_ctx=64, n_min=2)
        speculator.begin(0, [9, 5, 6, 7, 5, 6, 7, 5, 6, 7, 5, 6], sampler)
        sampler.close()  # the speculator needs it
        drafts = speculator.draft([{"text": 0, "room": 16}])
        self.assertEqual(drafts[0][:2], [7, 5])
        self.assertTrue(speculator.accept(0, 7))
        self.assertEqual(speculator.counts(0).accepted, 1)


    def test_passes_in_two_calls(self):
        first, second = (pi.Session(self.context, 64) for _ in range(2))
        tokens = self.model.tokenize(PROMPT)
        self.context.forward([{"session": first, "tokens": tokens, "logits": pi.PI_LOGITS_LAST}])
        expected = self.context.logits()
        self.assertEqual((self.context.passes(), self.context.ranks()), (1, 1))
        self.context.forward_begin([{"session": second, "tokens": tokens,
                                     "logits": pi.PI_LOGITS_LAST}])
        with self.assertRaisesRegex(pi.Error, "too many passes"):
            self.context.forward_begin([{"session": first, "tokens": [1]}])
        second.close()  # the pass needs it
        gc.collect()
        self.context.forward_end()
        self.assertEqual(self.context.logits(), expected)
        with self.assertRaisesRegex(pi.Error, "no forward pass is under way"):
            self.context.forward_end()
        with self.assertRaisesRegex(pi.Error, "no cluster"):
            self.context.get_ranks()
        self.context.forward_begin([{"session": first, "tokens": [1]}])  # closed before its end

    def test_head_that_drafts(self):
        with self.assertRaises(pi.Error) as caught:
            self.model.open_drafter()  # the file has no such layers
        self.assertEqual(caught.exception.status, pi.PI_ERR_NOT_FOUND)
        path = os.path.join(FOLDER, "head.gguf")
        subprocess.run([sys.executable, os.path.join(TOP, "tests/bindings/make_head.py"), path],
                       check=True)
        plain = self.generate().tokens
        head = self.model.open_drafter(path)
        with self.make_context(drafter=head, n_logits=64) as context, \
                pi.Context(head, n_threads=1) as heads:
            session = pi.Session(context, 512)
            self.assertEqual(session.features_first(), 0)
            result = context.generate(session, prompt=PROMPT, max_tokens=24, sampler=self.greedy,
                                      speculator=pi.Speculator(self.model, heads))
            self.assertEqual(result.tokens, plain)
            self.assertGreater(result.n_drafted, 0)
            row = session.features(session.length() - 1)
            self.assertEqual(len(row), head.get_info().n_features)
            self.assertGreater(max(map(abs, row)), 0)
            self.assertIsNone(session.features(session.length()))
        self.assertIsNone(self.session.features(0))
        self.assertEqual(self.session.features_first(), self.session.length())


CLUSTER = """
import sys, powerinfer as pi
cluster = pi.Cluster(timeout=20, split=[1] * int(sys.argv[2]))
assert cluster.size() == int(sys.argv[2])
receives = cluster.rank() > 0 and "send" in sys.argv
model = cluster.receive() if receives else pi.Model(sys.argv[1])
options = {"device": pi.PI_DEVICE_CPU, "n_threads": 1}
if cluster.rank() > 0:
    cluster.work(model, **options)
else:
    context = pi.Context(model, cluster=cluster, **options)
    cluster.close()  # the context needs it
    sessions = [pi.Session(context, 64) for _ in range(context.passes())]
    assert context.ranks() == len(sessions)
    for s in sessions:
        context.forward_begin([{"session": s, "tokens": [1, 2, 3], "logits": pi.PI_LOGITS_LAST}])
    for s in sessions:
        context.forward_end()
        print(list(context.logits()[:8]))
    print([(r.first_layer, r.end_layer) for r in context.get_ranks()])
"""


class Cluster(WithModel):
    def run_ranks(self, n, *arguments):
        script = os.path.join(FOLDER, "cluster.py")
        with open(script, "w", encoding="utf-8") as f:
            f.write(CLUSTER)
        launcher = ["mpirun", "--oversubscribe", "-n", str(n)] if n > 1 else []
        env = {**os.environ, "PYTHONPATH": os.path.dirname(pi.__file__),
               "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return subprocess.run(launcher + [sys.executable, script, MODEL, str(n), *arguments],
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=100)

    def test_ranks(self):
        library = os.path.join(os.path.dirname(os.environ["POWERINFER_LIBRARY"]),
                               "libpowerinfer_mpi.so")
        if not os.path.exists(library):
            run = self.run_ranks(1)
            self.assertIn("MPI", run.stderr.splitlines()[-1])
            return
        self.context.forward([{"session": self.session, "tokens": [1, 2, 3],
                               "logits": pi.PI_LOGITS_LAST}])
        expected = "%s\n" % list(self.context.logits()[:8])
        n_layers = self.context.get_placement().n_layers
        for n in (1, 2) if shutil.which("mpirun") else (1,):
            layers = [(i * n_layers // n, (i + 1) * n_layers // n) for i in range(n)]
            for how in ("", "send"):
                run = self.run_ranks(n, how)
                self.assertEqual((run.returncode, run.stdout), (0, expected * n + "%s\n" % layers),
                                 run.stderr)

    def test_fail(self):
        with self.assertRaisesRegex(TypeError, "no field"):
            pi.Cluster(warmth=1)
        script = "import powerinfer as pi; c = pi.Cluster(); c.fail(); c.close(); print('not here')"
        env = {**os.environ, "PYTHONPATH": os.path.dirname(pi.__file__)}
        run = subprocess.run([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, timeout=100)
        self.assertEqual((run.returncode, run.stdout), (1, ""), run.stderr)


class Tools(WithModel):
    def test_tools(self):
        seen = []
        out = os.path.join(FOLDER, "small.gguf")
        result = pi.quantize(MODEL, out, type="q4_0", allow_requantize=True, tensor=seen.append)
        self.assertEqual((len(seen), result.bytes_out < result.bytes_in), (result.n_tensors, True))
        self.assertEqual({t.from_ for t in seen} >= {"q8_0", "f32"}, True)
        self.assertIn("q4_0", pi.inspect(out))
        self.assertEqual(json.loads(pi.inspect(out, json=True))["architecture"], "llama")
        self.assertIn("novella", pi.place(MODEL, profile="rtx-4090-ddr5"))
        with open(os.path.join(TOP, "models", "calibration.txt"), encoding="utf-8") as f:
            text = f.read(8000)
        context = {"device": pi.PI_DEVICE_CPU, "n_threads": 1}
        report = pi.perplexity(self.model, text, n_ctx=256, n_windows=2, context=context)
        self.assertEqual((report.n_windows, report.tokens), (2, 510))
        self.assertTrue(1 < report.perplexity < 1000)
        bench = pi.bench(self.model, prompts=[8], gens=[2], repetitions=1, context=context)
        self.assertEqual([r.test for r in bench.results], ["pp8", "tg2"])
        self.assertEqual(pi.quantize_type_name("q4_k_m"), "Q4_K_M")
        self.assertEqual(pi.quantize_type_name("nothing"), None)


class Errors(WithModel):
    def test_errors(self):
        path = os.path.join(FOLDER, "missing.gguf")
        with self.assertRaises(pi.Error) as raised:
            pi.Model(path)
        self.assertEqual(raised.exception.status, pi.PI_ERR_IO)
        self.assertIn(path, str(raised.exception))
        with self.assertRaises(pi.Error) as raised:
            self.context.forward([{"session": self.session, "tokens": [10 ** 9]}])
        self.assertEqual(raised.exception.status, pi.PI_ERR_RANGE)
        with self.assertRaises(ValueError):
            self.greedy.sample([0.0])

    def test_callbacks_that_raise(self):
        def broken(*_):
            raise KeyError("mine")
        with self.assertRaisesRegex(KeyError, "mine"):
            self.generate(piece=broken)
        self.session.rewind(0)
        with self.assertRaisesRegex(KeyError, "mine"):
            self.generate(progress=broken)
        with self.assertRaisesRegex(KeyError, "mine"):
            pi.Model(MODEL, no_mmap=True, progress=broken)
        with self.assertRaises(pi.Error) as raised:
            pi.Model(MODEL, no_mmap=True, progress=lambda stage, fraction: False)
        self.assertEqual(raised.exception.status, pi.PI_ERR_CANCELLED)
        self.session.rewind(0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
        with self.assertRaises(KeyboardInterrupt):  # Ctrl-C
            self.generate(piece=lambda token, text: signal.raise_signal(signal.SIGINT))
        self.session.rewind(0)
        self.assertEqual(self.generate().n_tokens, 24)  # the context is as good as before

    def test_stopping(self):
        result = self.generate(max_tokens=-1, piece=lambda token, text: "house" not in text)
        self.assertEqual((result.stop, result.text), (pi.PI_STOP_CANCELLED, " of the house"))
        self.session.rewind(0)
        stream = self.context.stream(self.session, prompt=PROMPT, max_tokens=-1,
                                     sampler=pi.Sampler(self.model, temp=0))
        self.assertEqual(next(stream), " of")
        stream.close()
        self.assertLess(self.session.length(), self.session.capacity())


class Threads(WithModel):
    def test_cancel_from_another_thread(self):
        started, results = threading.Event(), []

        def piece(token, text):
            started.set()
            time.sleep(0.001)  # so that the text lasts longer than the test's reaction

        thread = threading.Thread(target=lambda: results.append(
            self.generate(max_tokens=-1, piece=piece)))
        thread.start()
        self.assertTrue(started.wait(60))
        self.context.cancel()
        thread.join(60)
        self.assertEqual(results[0].stop, pi.PI_STOP_CANCELLED)

    def test_contexts_in_threads(self):
        expected = self.generate().text
        texts = []

        def work():
            with self.make_context() as context, pi.Session(context, 64) as session:
                texts.append(context.generate(session, prompt=PROMPT, max_tokens=24,
                                              sampler=pi.Sampler(self.model, temp=0)).text)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(texts, [expected] * 4)

    def test_one_context_in_threads(self):
        """Calls of several threads on one context follow each other."""
        expected = self.generate().text
        texts = []

        def work():
            with pi.Session(self.context, 64) as session:
                texts.append(self.context.generate(session, prompt=PROMPT, max_tokens=24,
                                                   sampler=pi.Sampler(self.model, temp=0)).text)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(texts, [expected] * 4)


class Lifetime(WithModel):
    def test_any_order(self):
        handle = self.model._open()
        self.model.close()
        self.context.close()
        self.assertGreater(handle.uses, 0)
        self.assertEqual(self.session.length(), 0)  # its context is still there
        with self.assertRaisesRegex(ValueError, "the context is closed"):
            self.generate()
        self.session.destroy()
        self.session.destroy()
        self.assertGreater(handle.uses, 0)  # for the sampler
        self.greedy.close()
        self.assertEqual(handle.uses, 0)

    def test_closed_during_a_call(self):
        def piece(token, text):
            self.context.close()
            self.session.close()
            self.model.close()
        handle = self.context._open()
        self.assertEqual(self.generate(piece=piece).n_tokens, 24)
        self.assertEqual(handle.uses, 0)

    def test_garbage(self):
        handle = self.context._open()
        cycle = [self.session, self.context, self.greedy]
        cycle.append(cycle)
        seen = weakref.ref(self.session)
        del self.session, self.context, self.greedy, cycle
        gc.collect()
        self.assertEqual((seen(), handle.uses), (None, 0))

    @unittest.skipUnless(os.path.exists("/proc/self/statm"), "*** SKIPPED: no /proc: memory ***")
    def test_memory_of_200_rounds(self):
        def resident():
            gc.collect()
            with open("/proc/self/statm", encoding="ascii") as f:
                return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        grammar = 'root ::= [a-z ]+'
        before = 0
        for i in range(300):
            if i == 100:  # the allocator has what it keeps
                before = resident()
            with pi.Model(MODEL) as model, pi.Context(
                    model, n_threads=1, n_batch=32, device=pi.PI_DEVICE_CPU) as context:
                session = pi.Session(context, 64)
                with pi.Sampler(model, grammar=pi.Grammar(model, grammar)) as sampler:
                    context.generate(session, prompt="a", max_tokens=2, sampler=sampler)
                pi.ChatTemplate(model, name="chatml").render({"messages": []})
                session.get_state(model.tokenize("a"))
        grown = resident() - before
        self.assertLess(grown, 4 << 20)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
