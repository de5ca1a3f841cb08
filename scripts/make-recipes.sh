#!/bin/sh
# Fills in the recipes for Homebrew and winget from the files of a release, for `make recipes`.
#   scripts/make-recipes.sh HOMEPAGE URL SOURCE.tar.gz WINDOWS.zip OUT
# URL is the address of the folder with both files. OUT gets homebrew/ and winget/.
set -eu
if [ $# -ne 5 ]; then
    echo "usage: $0 HOMEPAGE URL SOURCE.tar.gz WINDOWS.zip OUT" >&2
    exit 2
fi
homepage=$1 url=$2 source=$3 zip=$4 out=$5
folder=$(dirname "$0")/..
for address in "$homepage" "$url"; do
    case $address in
    https://*[!/]) ;;
    *) echo "make-recipes: not an https address without a slash at its end: \"$address\"" >&2; exit 2 ;;
    esac
done
version=$(sed -n 's/^project(powerinfer VERSION \([0-9.]*\) .*/\1/p' "$folder/CMakeLists.txt")
for file in "powerinfer-$version.tar.gz:$source" "powerinfer-windows-x86_64.zip:$zip"; do
    if [ "$(basename "${file#*:}")" != "${file%%:*}" ]; then
        echo "make-recipes: ${file#*:}: the recipes name it ${file%%:*}: rename it" >&2
        exit 1
    elif [ ! -f "${file#*:}" ]; then
        echo "make-recipes: no such file: ${file#*:}: make it first: make windows, git archive" >&2
        exit 1
    fi
done
day=$(sed -n 's/^ -- .*>  //p' "$folder/packaging/debian/changelog" | head -n 1)
program=$(cmake -E tar tf "$zip" | sed -n '/\(^\|\/\)powerinfer\.exe$/p')
if [ "$(echo "$program" | grep -c .)" -ne 1 ]; then
    echo "make-recipes: $zip: expected one powerinfer.exe, found: ${program:-none}" >&2
    exit 1
fi
sum() { sha256sum "$1" | cut -d ' ' -f 1; }

mkdir -p "$out/homebrew" "$out/winget"
for file in homebrew/powerinfer.rb winget/*.yaml; do
    for template in "$folder"/packaging/$file; do
        sed -e "s|@VERSION@|$version|; s|@HOMEPAGE@|$homepage|; s|@URL@|$url|" \
            -e "s|@SOURCE_SHA256@|$(sum "$source")|" \
            -e "s|@ZIP_SHA256@|$(sum "$zip" | tr a-f A-F)|" \
            -e "s|@PROGRAM@|$(echo "$program" | sed 's|/|\\\\|g')|" \
            -e "s|@DATE@|$(date -u -d "$day" +%F)|" \
            -e '/^# `make recipes`/,/^# Linux only/d' \
            "$template" >"$out/${file%/*}/$(basename "$template")"
    done
done
