#!/bin/sh
# Packages the bindings, installs both packages into empty folders, and runs their examples with the
# library inside: packages.sh LIBRARY PROGRAM FOLDER. What cannot be installed is skipped with a
# message; the test is skipped (77) if this is all.
set -eu
library=$1 folder=$3
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$(dirname "$(dirname "$library")")
model=$top/models/novella-7m.q8_0.powerinfer.gguf
unset POWERINFER_LIBRARY LD_LIBRARY_PATH PYTHONPATH NODE_PATH
command -v python3 >/dev/null 2>&1 || {
    echo "*** SKIPPED: there is no python3; the packages of the bindings were not tested ***"
    exit 77
}
export PYTHONDONTWRITEBYTECODE=1
rm -rf "$folder"
mkdir -p "$folder/python" "$folder/node"
"$top/scripts/package-bindings.sh" "$build" "$folder"
tested=0

# The files are those that RECORD lists, with their hashes.
python3 - "$folder"/*.whl <<'CHECK'
import base64, csv, hashlib, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
names = set(archive.namelist())
record = next(n for n in names if n.endswith(".dist-info/RECORD"))
rows = list(csv.reader(archive.read(record).decode().splitlines()))
assert {row[0] for row in rows} == names, "RECORD lists other files"
for name, digest, size in rows:
    data = archive.read(name)
    hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert name == record or (digest, size) == ("sha256=" + hashed, str(len(data))), name
CHECK

cd "$folder/python"
if python3 -m venv venv >venv.log 2>&1; then
    venv/bin/pip install --quiet --disable-pip-version-check --no-index "$folder"/*.whl
    # Every library but those of the system is the package's own.
    venv/bin/python - "$model" <<'CHECK'
import re, sys
import powerinfer as pi
model = pi.Model(sys.argv[1])
session = pi.Session(pi.Context(model, device=pi.PI_DEVICE_CPU), 64)
with open("/proc/self/maps") as f:
    loaded = set(re.findall(r"\S*/lib(?:powerinfer|pcre2-8|jansson|utf8proc|uring)\.so\S*", f.read()))
assert loaded and all(path.startswith(sys.prefix) for path in loaded), loaded
print(len(loaded), "libraries from the wheel")
CHECK
    said=$(echo "Tell me of the sea." | venv/bin/python "$top/bindings/python/examples/chat.py" "$model" 60)
    [ "${#said}" -gt 20 ] || { echo "the example in Python wrote: $said"; exit 1; }
    venv/bin/python "$top/bindings/python/examples/chat.py" nothing.gguf 2>message && exit 1
    grep -q nothing.gguf message
    tested=1
else
    echo "*** SKIPPED: python3 has no venv; the wheel was not installed ***"
fi

cd "$folder/node"
if ! ls "$folder"/*.tgz >/dev/null 2>&1; then
    echo "*** SKIPPED: there is no npm; no package for Node was made ***"
elif echo '{"private": true}' >package.json &&
    npm install --no-audit --no-fund --ignore-scripts "$folder"/*.tgz >npm.log 2>&1; then
    cat >loaded.mjs <<'CHECK'
import fs from 'node:fs';
import * as pi from 'powerinfer';
const libraries = /\S*\/lib(?:powerinfer|pcre2-8|jansson|utf8proc|uring)\.so\S*/g;
const loaded = new Set(fs.readFileSync('/proc/self/maps', 'utf8').match(libraries));
for (const file of loaded) {
    if (!file.startsWith(process.cwd())) throw new Error(`loaded: ${file}`);
}
if (!pi.version()) throw new Error('no version');
console.log(loaded.size, 'libraries from the package');
CHECK
    node loaded.mjs
    example=node_modules/powerinfer/examples/chat.mjs
    said=$(echo "Tell me of the sea." | node $example "$model" 60)
    [ "${#said}" -gt 20 ] || { echo "the example for Node wrote: $said"; exit 1; }
    node $example nothing.gguf 2>message && exit 1
    grep -q nothing.gguf message
    tested=1
else
    echo "*** SKIPPED: npm cannot install koffi; the package for Node was not installed ***"
    tail -n 5 npm.log
fi
[ $tested = 1 ] || exit 77
