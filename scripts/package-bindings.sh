#!/bin/sh
# Packages the bindings: a wheel for Python and an npm package for Node, each with the shared library
# and the libraries that it needs. scripts/package-bindings.sh [BUILD FOLDER [OUTPUT FOLDER]]; the
# build folder needs the target powerinfer_shared. For Linux.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
out=${2:-$build/bindings}
for tool in python3 ldd; do
    command -v $tool >/dev/null 2>&1 || { echo "package-bindings: there is no $tool" >&2; exit 1; }
done
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cmake --install "$build" --component runtime --strip --prefix "$stage" >/dev/null
mkdir -p "$out" "$stage/files"
library=$(find "$stage" -type f -name 'libpowerinfer.so.*')
version=${library##*.so.}
# The name that programs load has the major and minor version.
cp "$library" "$stage/files/libpowerinfer.so.${version%.*}"
# Everything but the C library, which every system has.
ldd "$library" | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\).*/\1 \2/p' |
    grep -vE '^(libc|libm|libdl|libpthread|librt)\.so' >"$stage/needed" || :
mkdir "$stage/licenses"
cp LICENSE "$stage/licenses/powerinfer.txt"
while read -r name file; do
    cp -L "$file" "$stage/files/$name"
    package=$(dpkg-query -S "*/$(basename "$(readlink -f "$file")")" 2>/dev/null | sed 's/:.*//;q') || :
    text=/usr/share/doc/$package/copyright
    if [ -n "$package" ] && [ -f "$text" ]; then cp "$text" "$stage/licenses/$name.txt"
    else echo "package-bindings: no licence text: $file: add it to the packages" >&2; fi
done <"$stage/needed"
chmod 644 "$stage/files/"*
python3 bindings/package.py wheel "$version" "$stage/files" "$stage/licenses" "$out"
python3 bindings/package.py npm "$version" "$stage/files" "$stage/licenses" "$stage/npm"
if command -v npm >/dev/null 2>&1; then
    (cd "$stage/npm" && npm pack --silent --pack-destination "$stage" >/dev/null)
    cp "$stage"/*.tgz "$out"
else
    echo "package-bindings: there is no npm: no package for Node" >&2
fi
for file in "$out"/powerinfer-"$version"*; do echo "$file"; done
