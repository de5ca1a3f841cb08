#!/bin/sh
# Tests the binding for Node: node.sh LIBRARY PROGRAM FOLDER. npm installs koffi and the compiler of
# TypeScript into FOLDER; if it cannot, the test is skipped (77) with a message.
set -eu
library=$1 program=$2 folder=$3
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
if ! command -v npm >/dev/null 2>&1 || ! node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)'; then
    echo "*** SKIPPED: there is no Node 18 or later with npm; its binding was not tested ***"
    exit 77
fi
mkdir -p "$folder"
cp "$here/node/"* "$folder"
cd "$folder"
npm ci --no-audit --no-fund --ignore-scripts >npm.log 2>&1 || {
    echo "*** SKIPPED: npm cannot install koffi and typescript; the binding for Node was not tested ***"
    tail -n 5 npm.log
    exit 77
}
# A copy, so that it finds koffi.
cp -r "$top/bindings/node" node_modules/powerinfer
node_modules/.bin/tsc
rm -f layout.json
if ! PYTHONDONTWRITEBYTECODE=1 python3 "$top/bindings/generate.py" --layout >layout.json; then
    echo "*** SKIPPED: without python3 the structs were not compared with those of the C compiler ***"
fi
POWERINFER_LIBRARY=$library node --expose-gc test_node.mjs "$top" "$program" "$folder"
