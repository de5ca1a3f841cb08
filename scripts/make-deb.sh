#!/bin/sh
# Makes the Debian packages of a finished build, for `make deb`.
#   scripts/make-deb.sh BUILD      writes BUILD/*.deb
# With DEBEMAIL (and DEBFULLNAME) in the environment, this person is the maintainer.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 BUILD" >&2; exit 2; }
cd "$(dirname "$0")/.."
build=$1
prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:[A-Z]*=//p' "$build/CMakeCache.txt")
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$build/CMakeCache.txt")
changelog=$(sed -n '1s/^powerinfer (\(.*\)) .*/\1/p' packaging/debian/changelog)
if [ "$prefix" != /usr ]; then
    echo "make-deb: the prefix of $build is $prefix: configure it with /usr" >&2
    exit 1
fi
if [ "$version" != "$changelog" ]; then
    echo "make-deb: packaging/debian/changelog begins with version $changelog, the build is" \
        "$version: describe the release there" >&2
    exit 1
fi

rm -rf "$build/package" "$build"/*.deb
mkdir -p "$build/package"
cp -r packaging/debian "$build/package/debian"
if [ -n "${DEBEMAIL:-}" ]; then
    person="${DEBFULLNAME:-PowerInfer in C authors} <$DEBEMAIL>"
    sed -i "s|^Maintainer: .*|Maintainer: $person|" "$build/package/debian/control"
    sed -i "1,/^ -- /s|^ -- .*>  | -- $person  |" "$build/package/debian/changelog"
fi
(cd "$build/package" && debian/rules binary >"../package.log" 2>&1) || {
    cat "$build/package.log" >&2
    exit 1
}
rm -rf "$build/package"
ls -l "$build"/*.deb
