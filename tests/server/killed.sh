#!/bin/sh
# A server that is killed (SIGKILL) while it writes prompt states to the drive loses at most the
# state that was being written: the next server finds the states of all earlier conversations, and
# its answers are those of the first. killed.sh PROGRAM FOLDER. Without curl: skipped (77).
set -eu
program=$1 folder=$2
command -v curl >/dev/null 2>&1 || { echo "SKIPPED: there is no curl"; exit 77; }
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
server=
trap 'kill -9 $server 2>/dev/null || :' EXIT

fail() {
    echo "FAILED: $1"
    tail -5 messages 2>/dev/null
    exit 1
}

start() {
    : >address # so that the loop does not find the address of the last server
    "$program" serve --port 0 -np 1 -c 2048 -t 1 --temp 0 --deterministic --cache-ram 0 \
        --cache-disk cache >address 2>messages &
    server=$!
    for _ in $(seq 600); do
        grep -q listening address && break
        kill -0 $server || fail "the server does not start"
        sleep 0.05
    done
    grep -q listening address || fail "the server does not listen"
    port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' address)
}
# Conversation $1: more than 300 tokens. Prints the answer and the number of cached tokens.
ask() {
    text=$(for i in $(seq 60); do printf 'The king %s saw ship number %s. ' "$1" "$i"; done)
    curl -s -f "http://127.0.0.1:$port/v1/completions" \
        -d "{\"prompt\":\"$text\",\"max_tokens\":8,\"ignore_eos\":true}" |
        sed 's/.*"text":"\(.*\)","logprobs.*"cached_tokens":\([0-9]*\).*/\2 \1/'
}

# Waits until more than $1 files are complete and no file is being written, on a busy machine as well;
# prints their number.
written_files() {
    for _ in $(seq 200); do
        n=$(find cache -type f ! -name '*.new' | wc -l)
        if [ "$n" -gt "$1" ] && [ -z "$(find cache -name '*.new')" ]; then
            sleep 0.1
            [ "$n" != "$(find cache -type f | wc -l)" ] || break
        fi
        sleep 0.05
    done
    echo "$n"
}

mkdir cache
start
for k in 0 1 2 3; do ask $k | sed 's/^[0-9]* //' >expected.$k; done
[ -s expected.0 ] || fail "no answers"
kill $server
wait $server || fail "the first server ended with $?"

written=0
for trial in 1 2 3 4 5 6; do
    rm -rf cache
    mkdir cache
    start
    ask 0 >out
    ask 1 >out # the state of 0 goes to the drive when 1 is read
    files=$(written_files 0)
    ask 2 >out # and so on
    written_files "$files" >out
    ask 3 >out & # the state of 2 is being written
    waiting=$!
    sleep "0.0$trial"
    kill -9 $server
    wait $server 2>/dev/null || :
    wait $waiting || :
    [ -z "$(find cache -name '*.new')" ] || written=$((written + 1))
    start
    for k in 1 0; do
        answer=$(ask $k)
        [ "${answer%% *}" -ge 256 ] || fail "trial $trial: conversation $k has ${answer%% *} tokens on the drive"
    done
    for k in 2 3 0 1; do
        answer=$(ask $k)
        [ "${answer#* }" = "$(cat expected.$k)" ] || fail "trial $trial: another answer to $k: $answer"
    done
    kill $server
    wait $server || fail "trial $trial: the server ended with $?"
done
server=
echo "6 kills, $written of them while a file was being written"
