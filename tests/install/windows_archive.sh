#!/bin/sh
# windows_archive.sh ZIP FOLDER WINE: unpacks the archive into a folder with blanks, umlauts and
# Chinese characters, and more than 260 characters long, and runs its program there with a new wine
# prefix, as a user would on a new machine.
set -eu
zip=$1 work=$2 wine=$3
rm -rf "$work"
long=$(printf '%0100d' 0)
folder="$work/Ein Ordner mit Umläuten äöüß/中文 模型/$long/$long/$long"
mkdir -p "$folder"
(cd "$folder" && cmake -E tar xf "$zip")
# A working folder cannot be as long on most machines.
cd "$work"
folder=$folder/powerinfer-windows-x86_64
export WINEPREFIX="$work/prefix"
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :' EXIT

fail() {
    echo "windows_archive: $*" >&2
    exit 1
}
pi() {
    "$wine" "$folder/powerinfer.exe" "$@" 2>err || fail "$*: status $?: $(cat err)"
}
expect() { # TEXT WHAT: compares with the file `out`
    [ "$(cat out)" = "$1" ] || fail "$2: $(cat out)"
}

for file in README.txt licenses/powerinfer.txt licenses/curl.txt lib/powerinfer.lib include/powerinfer.h; do
    [ -s "$folder/$file" ] || fail "no $file in the archive"
done
pi --version >out
grep -q '^powerinfer ' out || fail "version: $(cat out)"
pi run -p "The old lighthouse keeper" -n 20 --temp 0 -q >out
expect ' of the house, and the old man, who was a man of the house, was a man' 'run'
pi run -p "The old lighthouse keeper" -n 20 --temp 0 -q --ram-budget 64M >out
expect ' of the house, and the old man, who was a man of the house, was a man' 'run with a memory budget'
# A model alone, as Explorer gives a file that was dragged onto the program, begins a conversation.
printf 'Hello\n/bye\n' | pi "$folder/models/novella-7m.q8_0.powerinfer.gguf" >out
[ -s out ] && grep -q 'context of' err || fail "a model alone: $(cat out err)"
# Arguments and standard input are UTF-8, and not changed on the way.
pi tokenize --ids -p 'Grüße, 世界' >ids
printf 'Grüße, 世界' | pi tokenize --ids --stdin >out
cmp ids out || fail "tokens of an argument and of standard input differ"
# A target that exists is replaced, also by names of any language and with backslashes.
model=$folder/models/novella-7m.q8_0.powerinfer.gguf
pi quantize "$model" "$folder/models"'\Größe 模型.gguf' F16
pi quantize "$model" "$folder/models"'\Größe 模型.gguf' F16
[ "$(ls "$folder/models" | grep -c 'Größe 模型.gguf')" = 1 ] || fail "quantize: $(ls "$folder/models")"
pi inspect "$folder/models/Größe 模型.gguf" >out
grep -q llama out || fail "inspect: $(cat out)"

"$wine" "$folder/powerinfer.exe" serve --port 0 >serve 2>serve.err &
server=$!
for i in $(seq 300); do
    address=$(sed -n 's|^listening on \(http://[0-9.:]*\).*|\1|p' serve serve.err | tr -d '\r' | head -n 1)
    [ -z "$address" ] || break
    sleep 0.2
done
[ -n "$address" ] || fail "serve: $(cat serve serve.err)"
curl -sSf "$address/v1/completions" -H 'Content-Type: application/json' \
    -d '{"prompt": "The old lighthouse keeper", "max_tokens": 20, "temperature": 0}' >out
grep -q 'of the house, and the old man' out || fail "completion: $(cat out)"
curl -sSf "$address/" >out
grep -qi '<!doctype html' out || fail "no page"
kill "$server"
server=
wineserver -k || :
rm -rf "$work"
echo "the archive runs in a folder of $(printf %s "$folder" | wc -c) bytes"
