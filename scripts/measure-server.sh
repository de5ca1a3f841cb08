#!/bin/sh
# Measures HTTP servers with llama.cpp's API: `powerinfer serve`, and for comparison llama-server.
# With two programs, runs alternate. Needs python3. Prints one line per measurement. On a busy machine
# compare the tokens per second of CPU time with -t 1: threads that wait for each other use CPU time.
# The model needs a vocabulary, which `synth` does not write: llama-server aborts without one.
#
#   scripts/measure-server.sh throughput -m MODEL PROGRAM [PROGRAM]  # tokens/s of 1..32 clients
#   scripts/measure-server.sh long -m MODEL PROGRAM [PROGRAM]     # 16 clients, and a long prompt
#   scripts/measure-server.sh returns -m MODEL PROGRAM [PROGRAM]  # conversations return to two slots
#
# Options: -r RUNS (3), -t THREADS, -n TOKENS (64), -p PROMPT (128; long: 100000; returns: 4000),
# --clients 1,4,8,16,32, --conversations 10, -- OPTIONS of all servers.
command -v python3 >/dev/null 2>&1 || { echo "there is no python3" >&2; exit 1; }
exec python3 - "$@" <<'END'
import argparse, http.client, json, os, random, re, shutil, socket, statistics, subprocess
import sys, tempfile, threading, time

parser = argparse.ArgumentParser(prog="measure-server.sh")
parser.add_argument("kind", choices=["throughput", "long", "returns"])
parser.add_argument("programs", nargs="+", metavar="PROGRAM")
parser.add_argument("-m", "--model", required=True)
parser.add_argument("-r", "--runs", type=int, default=3)
parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
parser.add_argument("-n", "--tokens", type=int, default=64)
parser.add_argument("-p", "--prompt", type=int)
parser.add_argument("--clients", default="1,4,8,16,32")
parser.add_argument("--conversations", type=int, default=10)
arguments, rest = sys.argv[1:], []
if "--" in arguments:
    at = arguments.index("--")
    arguments, rest = arguments[:at], arguments[at + 1:]
o = parser.parse_args(arguments)
o.prompt = o.prompt or {"throughput": 128, "long": 100000, "returns": 4000}[o.kind]
clients = [int(n) for n in o.clients.split(",")]


class Server:
    def __init__(self, program, slots, context, more=()):
        self.name = os.path.basename(program)
        self.is_own = "llama" not in self.name
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        command = [program] + (["serve"] if self.is_own else [])
        command += ["-m", o.model, "--host", "127.0.0.1", "--port", str(self.port), "-t",
                    str(o.threads), "-np", str(slots), "-c", str(context)]
        command += list(more) if self.is_own else []
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command + rest, stdout=self.log, stderr=self.log)
        for _ in range(3000):
            if self.process.poll() is not None:
                self.log.seek(0)
                sys.exit(self.log.read().decode(errors="replace")[-2000:])
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        else:
            sys.exit(f"{self.name} is not ready after 5 minutes")
        self.n_vocab = self.find_vocabulary()

    def find_vocabulary(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/v1/models")
        meta = json.loads(connection.getresponse().read())["data"][0].get("meta") or {}
        return meta.get("n_vocab", 1000)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def ask(self, prompt, n, times=None):
        """Returns seconds to the first token; times gets the clock of every token."""
        body = {"prompt": prompt, "n_predict": n, "ignore_eos": True, "stream": True,
                "cache_prompt": True, "temperature": 0}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=36000)
        start, first = time.monotonic(), None
        connection.request("POST", "/completion", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"{self.name}: {answer.status} {answer.read()[:500]}")
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            first = first or now - start
            if times is not None:
                times.append(now)
        return first


def tokens(server, n, seed):
    chance = random.Random(seed)
    low = min(300, server.n_vocab // 2)
    return [chance.randrange(low, server.n_vocab) for _ in range(n)]


def at(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def in_threads(jobs):
    threads = [threading.Thread(target=job) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def throughput(program, run, results):
    most = max(clients)
    server = Server(program, most, most * (o.prompt + o.tokens + 16))
    for shared in (False, True):
        for n in clients:
            firsts, rounds, base = [], 2, 1000000 * run + 1000 * n + shared
            common = tokens(server, o.prompt - 8, base) if shared else []

            def job(i):
                for k in range(rounds):
                    own = tokens(server, 8 if shared else o.prompt, base + 7919 * (i + 100 * k + 1))
                    firsts.append(server.ask(common + own, o.tokens))

            start, cpu = time.monotonic(), server.cpu_seconds()
            in_threads([lambda i=i: job(i) for i in range(n)])
            rate = n * rounds * o.tokens / (time.monotonic() - start)
            cpu_rate = n * rounds * o.tokens / (server.cpu_seconds() - cpu)
            name = "shared" if shared else "separate"
            results.setdefault((program, n, name), []).append(rate)
            results.setdefault((program, n, name, "CPU"), []).append(cpu_rate)
            print(f"{server.name}\trun {run}\t{n} clients\t{name} prompts\t{rate:.1f} tokens/s\t"
                  f"{cpu_rate:.1f} per second of CPU time\tfirst token {at(firsts, 0.5):.3f} s",
                  flush=True)
    server.stop()


def long_prompt(program, run, results):
    n = 16
    server = Server(program, n + 1, (n + 1) * (o.prompt + 64))
    gaps, stopped = [], threading.Event()

    def job(i):
        while not stopped.is_set():
            times = []
            server.ask(tokens(server, 32, 1000 * run + i), o.tokens, times)
            gaps.extend((b, b - a) for a, b in zip(times, times[1:]))

    threads = [threading.Thread(target=job, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    time.sleep(5)
    start = time.monotonic()
    first = server.ask(tokens(server, o.prompt, 99 + run), 1)
    end = time.monotonic()
    stopped.set()
    for t in threads:
        t.join()
    server.stop()
    for name, wanted in (("alone", lambda t: t < start), ("with the prompt", lambda t: start < t < end)):
        some = [gap for t, gap in gaps if wanted(t)]
        results.setdefault((program, name), []).append(at(some, 0.99))
        print(f"{server.name}\trun {run}\t{name}\tbetween tokens: p50 {1e3 * at(some, 0.5):.1f} ms, "
              f"p99 {1e3 * at(some, 0.99):.1f} ms, most {1e3 * max(some, default=0):.1f} ms", flush=True)
    print(f"{server.name}\trun {run}\tthe prompt of {o.prompt} tokens took {first:.1f} s", flush=True)


def returns(program, run, results):
    folder = tempfile.mkdtemp()
    context, conversations = 2 * (o.prompt + 64), range(o.conversations)
    more = ["--cache-disk", folder, "--cache-ram", "8192"]
    server = Server(program, 2, context, more)
    prompts = [tokens(server, o.prompt, 31 * run + i) for i in conversations]
    phases = [("first", [server.ask(p, 4) for p in prompts]),
              ("from memory", [server.ask(p, 4) for p in prompts])]
    server.stop()
    if server.is_own:
        server = Server(program, 2, context, more)
        phases.append(("from the drive", [server.ask(p, 4) for p in prompts]))
        server.stop()
    shutil.rmtree(folder)
    base = statistics.median(phases[0][1])
    for name, seconds in phases:
        middle = statistics.median(seconds)
        results.setdefault((program, name), []).append(middle)
        print(f"{server.name}\trun {run}\t{name}\tfirst token {middle:.4f} s\t{base / middle:.1f} "
              "times as fast as reading", flush=True)


results = {}
measure = {"throughput": throughput, "long": long_prompt, "returns": returns}[o.kind]
for run in range(o.runs):
    for program in o.programs if run % 2 == 0 else o.programs[::-1]:
        measure(program, run, results)
print("medians:")
for key, values in results.items():
    middle = statistics.median(values)
    other = (o.programs[-1],) + key[1:]
    ratio = ""
    if key[0] != o.programs[-1] and other in results:
        ratio = f"\tratio {middle / statistics.median(results[other]):.2f}"
    print("\t".join(str(part) for part in key) + f"\t{middle:.4g}{ratio}")
END
