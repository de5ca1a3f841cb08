#!/bin/sh
# Tests the server with real clients: clients.sh PROGRAM FOLDER. npm installs the clients into
# FOLDER; if it cannot, the test is skipped (77) with a message.
set -eu
program=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
cp "$here/package.json" "$here/package-lock.json" "$here/clients.mjs" "$folder"
cd "$folder"
command -v npm >/dev/null 2>&1 || { echo "SKIPPED: there is no npm"; exit 77; }
npm ci --no-audit --no-fund --ignore-scripts >npm.log 2>&1 || {
    echo "SKIPPED: npm cannot install the clients:"
    tail -n 5 npm.log
    exit 77
}
# The test compares answers: with float activations and a float KV cache, a cached prefix changes
# no answer.
"$program" serve --port 0 --chat-template chatml -c 8192 -q --kernels scalar -ctk f32 -ctv f32 >address 2>messages &
server=$!
trap 'kill $server 2>/dev/null || :' EXIT
for _ in $(seq 300); do
    grep -q listening address && break
    sleep 0.1
done
status=0
node clients.mjs "$(sed -n 's/^listening on //p' address)" || status=$?
kill $server
wait $server || { echo "the server ended with $?"; cat messages; status=1; }
trap - EXIT
exit $status
