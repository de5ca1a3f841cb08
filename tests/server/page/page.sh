#!/bin/sh
# The page in a browser: page.sh PROGRAM FOLDER [PART OF A TEST'S NAME]. npm installs the browser's
# driver into FOLDER; without npm or Chromium the test is skipped (77) with a message.
set -eu
program=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
cp "$here/package.json" "$here/package-lock.json" "$here"/*.mjs "$folder"
cd "$folder"
command -v npm >/dev/null 2>&1 || { echo "SKIPPED: there is no npm"; exit 77; }
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "SKIPPED: there is no Chromium"
    exit 77
}
npm ci --no-audit --no-fund --ignore-scripts >npm.log 2>&1 || {
    echo "SKIPPED: npm cannot install what drives the browser:"
    tail -n 5 npm.log
    exit 77
}
exec node page.mjs "$program" "$browser" "${3:-}"
