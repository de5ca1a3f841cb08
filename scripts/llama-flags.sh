#!/bin/sh
# Writes the tables of docs/llama-flags.md, from the first section on, as the program prints them.
#
#     scripts/llama-flags.sh [build/powerinfer]
set -eu
cd "$(dirname "$0")/.."
program=${1:-build/powerinfer}
page=docs/llama-flags.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT
sed '/^## /,$d' "$page" >"$new"
"$program" completion llama-flags >>"$new"
cat "$new" >"$page"
