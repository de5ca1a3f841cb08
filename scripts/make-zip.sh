#!/bin/sh
# Makes powerinfer-linux-ARCHITECTURE.zip of a finished build with -DPI_PORTABLE=ON, for `make zip`:
# program, bundled model, documentation, all shared libraries but glibc, and licences. (Archives would
# not link: jansson's and libedit's have names of this program.) Debian and Ubuntu only: their packages
# say which licence a library has.
#   scripts/make-zip.sh BUILD      writes BUILD/powerinfer-linux-x86_64.zip
set -eu
[ $# -eq 1 ] || { echo "usage: $0 BUILD" >&2; exit 2; }
cd "$(dirname "$0")/.."
build=$(cd "$1" && pwd)
if ! grep -qx 'PI_PORTABLE:BOOL=ON' "$build/CMakeCache.txt"; then
    echo "make-zip: $1 is not for other systems: configure it with -DPI_PORTABLE=ON" >&2
    exit 1
fi
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$build/CMakeCache.txt")
machine=$(uname -m)
name=powerinfer-$version-linux-$machine
folder=$build/zip/$name
rm -rf "$build/zip" "$build/powerinfer-linux-$machine.zip"
mkdir -p "$folder/licences" "$folder/lib/powerinfer"
cmake --install "$build" --component program --strip --prefix "$folder" >/dev/null

# ldd also lists the libraries of libraries.
ldd "$build/powerinfer" | sed -n 's/^\t\([^ ]*\) => \([^ ]*\) .*/\1 \2/p' | while read -r soname file; do
    case $soname in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.*) continue ;;
    esac
    cp -L "$file" "$folder/lib/powerinfer/$soname"
done
chmod 644 "$folder"/lib/powerinfer/*

# Their packages and licences.
for library in "$folder"/lib/powerinfer/*; do
    package=$(dpkg-query -S "*/${library##*/}" | sed -n '1s/[:,].*//p')
    source=$(dpkg-query -W -f '${source:Package} ${source:Version}\n' "$package" | head -n 1)
    cp "/usr/share/doc/$package/copyright" "$folder/licences/${source%% *}.txt"
    echo "- $source"
done | sort -u >"$build/zip/sources.txt"
# Texts that Debian's files refer to.
grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$folder"/licences/*.txt | sort -u |
    while read -r text; do cp -L "$text" "$folder/licences/"; done
cp LICENSE "$folder/licences/"

# The newest version of glibc's symbols that a file needs.
glibc=$(find "$folder/bin" "$folder/lib" -type f -exec objdump -T {} + |
    sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\))\{0,1\} .*/\1/p' | sort -Vu | tail -n 1)
[ -n "$glibc" ] || { echo "make-zip: objdump lists no symbols of glibc" >&2; exit 1; }
devices=$("$build/powerinfer" inspect --devices)
kernels=
for vendor in cuda:NVIDIA hip:AMD; do
    echo "$devices" | grep -q "^${vendor%%:*}: built without" || kernels="$kernels ${vendor#*:}"
done
kernels="Kernels for GPUs in this program:${kernels:- none}."
sed -e "s|@VERSION@|$version|; s|@GLIBC@|$glibc|; s|@KERNELS@|$kernels|" \
    -e "/@LIBRARIES@/{r $build/zip/sources.txt" -e 'd}' packaging/zip/README.md >"$folder/README.md"

(cd "$build/zip" && cmake -E tar cf "../powerinfer-linux-$machine.zip" --format=zip "$name")
rm -rf "$build/zip"
echo "needs glibc $glibc or later"
ls -l "$build/powerinfer-linux-$machine.zip"
