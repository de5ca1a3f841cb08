#!/bin/sh
# windows_readme.sh ZIP FOLDER WINE README...: unpacks the archive into a new wine prefix, in a folder
# with blanks, umlauts and Chinese characters, and runs the commands of the pages there: the lines of
# code blocks that begin with the program's name. README.txt of the archive is one of the pages. A
# server on this machine stands for Hugging Face's hub.
set -eu
zip=$1 work=$2 wine=$3
tests=$(cd "$(dirname "$0")" && pwd)
shift 3
if ! command -v python3 >/dev/null || ! command -v curl >/dev/null; then
    echo "*** SKIPPED: no python3 or no curl: the commands of the README were not run ***"
    exit 77
fi
rm -rf "$work"
place="$work/Ein Ordner mit Umläuten äöüß/中文 模型"
mkdir -p "$place"
(cd "$place" && cmake -E tar xf "$zip")
folder=$place/powerinfer-windows-x86_64
export WINEPREFIX="$work/prefix"
unset XDG_CACHE_HOME XDG_STATE_HOME HF_HUB_CACHE HF_TOKEN HF_HUB_OFFLINE HUGGINGFACE_HUB_CACHE
hub= server=
trap '[ -z "$hub" ] || kill $hub 2>/dev/null || :; [ -z "$server" ] || kill $server 2>/dev/null || :' EXIT
fail() {
    echo "windows_readme: $*" >&2
    exit 1
}

model=$folder/models/novella-7m.q8_0.powerinfer.gguf
"$wine" "$folder/powerinfer.exe" --version >/dev/null || fail "the program does not start"
mkdir -p "$WINEPREFIX/drive_c/models"
cp "$model" "$WINEPREFIX/drive_c/models/model.gguf"
cd "$folder"
mkdir talks
cp "$model" model.gguf
cp "$model" small.gguf
head -c 5000 models/calibration.txt >text.txt
cp "$model" out.powerinfer.gguf
echo 1 400 500 >ids.txt
python3 "$tests/hf_folder.py" hf-folder
echo '{"messages": [{"role": "user", "content": "Hello"}]}' >request.json
"$wine" powerinfer.exe prepare --undo model.gguf -o plain.gguf 2>err || fail "prepare --undo: $(cat err)"
"$wine" powerinfer.exe quantize plain.gguf in.gguf F16 2>err || fail "quantize: $(cat err)"
mkfifo "$work/end"
python3 "$tests/hub.py" "$model" Qwen/Qwen3-4B-GGUF Qwen3-4B-Q4_K_M.gguf \
    <"$work/end" >"$work/address" 2>"$work/hub.err" &
hub=$!
exec 9>"$work/end"
for i in $(seq 100); do [ -s "$work/address" ] && break || sleep 0.1; done
HF_ENDPOINT=$(cat "$work/address") HF_HOME="$work/Hub 缓存"
[ -n "$HF_ENDPOINT" ] || fail "the hub does not start: $(cat "$work/hub.err")"
export HF_ENDPOINT HF_HOME

# A command with its arguments as a shell reads them. Those that would take minutes get less to do.
run() {
    echo "$*"
    case $1 in
        synth)
            "$wine" powerinfer.exe "$@" --shape tiny >out 2>err </dev/null || fail "$*: $(cat err)"
            [ -s big.gguf ] || fail "$*: wrote no model"
            ;;
        convert)
            "$wine" powerinfer.exe "$@" >out 2>err </dev/null || fail "$*: $(cat err)"
            cp "$model" model.gguf # the other commands need a vocabulary
            ;;
        prepare | tune)
            set -- "$@" --calibration-tokens 1024
            "$wine" powerinfer.exe "$@" >out 2>err </dev/null || fail "$*: $(cat err)"
            ;;
        serve)
            "$wine" powerinfer.exe "$@" >out 2>err 9>&- &
            server=$!
            address=
            for i in $(seq 300); do
                address=$(sed -n 's|^listening on \(http://[0-9.:]*\).*|\1|p' out err | tr -d '\r' | head -n 1)
                [ -z "$address" ] || break
                sleep 0.2
            done
            [ -n "$address" ] || fail "$*: $(cat out err)"
            curl -sSf "$address/" >out
            grep -qi '<!doctype html' out || fail "$*: no page"
            curl -sSf "$address/v1/completions" -d '{"prompt": "The", "max_tokens": 5}' >out
            grep -q '"text"' out || fail "$*: $(cat out)"
            kill "$server"
            server=
            ;;
        chat)
            printf 'Grüße\n/save talks/Gespräch.jsonl\n/bye\n' |
                "$wine" powerinfer.exe "$@" -n 20 >out 2>err || fail "$*: $(cat err)"
            grep -q '"content":"Grüße"' talks/Gespräch.jsonl || fail "$*: $(cat talks/*)"
            rm talks/Gespräch.jsonl
            ;;
        *)
            "$wine" powerinfer.exe "$@" >out 2>err </dev/null || fail "$*: $(cat err)"
            ;;
    esac
}
n=0
for page in "$@" "$folder/README.txt"; do
    # Backslashes of paths stay; comments go; any free port serves.
    sed -n -E 's/^    (build\/powerinfer|powerinfer|\.\\powerinfer\.exe) //p' "$page" |
        sed -E 's/  +#.*$//; s/\\/\\\\/g; s/--port 8080/--port 0/' >"$work/lines"
    [ -s "$work/lines" ] || fail "$page has no commands"
    while read -r line <&8; do
        eval "run $line"
        n=$((n + 1))
    done 8<"$work/lines"
done
[ -s model.tuned.gguf ] || fail "tune wrote no model"
[ -n "$(find "$HF_HOME" -name '*.gguf')" ] || fail "-hf left nothing in the hub's folder"
[ "$n" -ge 7 ] || fail "only $n commands"

# The example of README.txt, compiled with the library of the archive.
build=$(sed -n 's/^    gcc //p' README.txt)
[ -n "$build" ] || fail "README.txt has no line for gcc"
eval "x86_64-w64-mingw32-gcc-posix $build" || fail "gcc $build"
"$wine" lib/generate.exe model.gguf "The old" >out 2>err || fail "generate: $(cat err)"
[ -s out ] || fail "generate wrote nothing"
exec 9>&-
wineserver -k || :
cd /
rm -rf "$work"
echo "$n commands"
