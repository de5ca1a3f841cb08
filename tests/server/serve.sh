#!/bin/sh
# The command as it is typed: serve.sh PROGRAM FOLDER. How it starts, ends, and refuses.
set -eu
program=$1 folder=$2
mkdir -p "$folder"
cd "$folder"

fail() {
    echo "FAILED: $1"
    cat out err
    exit 1
}

# Wrong command lines: status, and the words of the message.
wrong() { # status words options...
    want=$1 words=$2
    shift 2
    status=0
    "$program" serve "$@" >out 2>err || status=$?
    [ "$status" = "$want" ] || fail "serve $*: status $status"
    grep -q -- "$words" err || fail "serve $*: no \"$words\""
    [ ! -s out ] || fail "serve $*: something on standard output"
}
wrong 2 "two templates" --chat-template chatml --chat-template-file x
wrong 2 "the key is empty" --api-key ""
wrong 2 "too small" -c 3 -np 4
wrong 2 "from 0 to 65535" --port 65536
wrong 1 "no chat template has the name" --port 0 --chat-template nope
wrong 1 "cannot listen" --host 192.0.2.1 --port 0
wrong 1 "" -m no-such-file.gguf

"$program" serve --port 0 -c 256 -np 2 >out 2>err &
server=$!
trap 'kill $server 2>/dev/null || :' EXIT
for _ in $(seq 600); do
    grep -q listening out && break
    sleep 0.1
done
grep -qE '^listening on http://127\.0\.0\.1:[1-9][0-9]*$' out || fail "no line with the address"
[ "$(wc -l <out)" = 1 ] || fail "more than one line"
port=$(sed 's/.*://' out)
cp out first
wrong 1 "cannot listen" --port "$port"
kill "$server"
status=0
wait "$server" || status=$?
trap - EXIT
[ "$status" = 0 ] || fail "status $status after SIGTERM"
