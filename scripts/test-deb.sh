#!/bin/sh
# Tests the packages of `make deb`: lintian, then a fresh Debian in which they are installed, used by a
# user and by a compiler, removed and purged. Needs root, debootstrap and the network.
#   scripts/test-deb.sh BUILD
set -eu
[ $# -eq 1 ] || { echo "usage: $0 BUILD" >&2; exit 2; }
cd "$(dirname "$0")/.."
build=$1
. scripts/chroot.sh

lintian --fail-on error,warning --tag-display-limit 0 "$build"/*.deb
echo "lintian: no errors, no warnings"

# The runtime package has the name that follows from the soname.
soname=$(objdump -p "$build"/src/libpowerinfer.so | sed -n 's/.*SONAME *//p')
runtime=libpowerinfer${soname#libpowerinfer.so.}
[ -n "$(find "$build" -name "${runtime}_*.deb")" ] || fail "no package $runtime for $soname"

words="The old lighthouse keeper"
expected=$("$build/powerinfer" run -q -p "$words" -n 5 --temp 0)
chroot_make "$PWD/$build/chroot" gcc,libc6-dev,pkg-config
root=$build/chroot
inside() { chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"; }
listing() { (cd "$root" && find . -path ./proc -prune -o -name '*powerinfer*' -print | sort); }

mkdir "$root/packages"
cp "$build"/*.deb "$root/packages"
inside sh -c 'apt-get update -q && apt-get install -q -y --no-install-recommends /packages/*.deb' \
    >"$root.log" 2>&1 || { cat "$root.log" >&2; exit 1; }
rm -r "$root/packages"

same "run -n 5" "$(inside powerinfer run -q -p "$words" -n 5 --temp 0)" "$expected"
for page in powerinfer $(inside powerinfer --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/powerinfer-\1/p'); do
    [ -s "$root/usr/share/man/man1/$page.1.gz" ] || fail "no man page $page"
done
for file in bash-completion/completions/powerinfer zsh/vendor-completions/_powerinfer \
    fish/vendor_completions.d/powerinfer.fish doc/powerinfer/models.md \
    doc/powerinfer/copyright doc/powerinfer/changelog.gz; do
    [ -s "$root/usr/share/$file" ] || fail "not installed: /usr/share/$file"
done
inside sh -c 'cp /usr/share/doc/libpowerinfer-dev/examples/generate.c* /tmp && cd /tmp &&
    { [ ! -f generate.c.gz ] || gzip -d generate.c.gz; } &&
    gcc generate.c $(pkg-config --cflags --libs powerinfer) -o generate'
same "example" "$(inside /tmp/generate /usr/share/powerinfer/models/novella-7m.q8_0.powerinfer.gguf \
    "$words" 5)" "$expected"

inside apt-get remove -q -y powerinfer >"$root.log" 2>&1 || { cat "$root.log" >&2; exit 1; }
[ ! -e "$root/usr/bin/powerinfer" ] || fail "remove leaves the program"
inside gcc /tmp/generate.c -I/usr/include -lpowerinfer -o /tmp/again || fail "the library needs the program"
inside apt-get purge -q -y libpowerinfer-dev "$runtime" >"$root.log" 2>&1 ||
    { cat "$root.log" >&2; exit 1; }
left=$(listing; inside dpkg-query -W '*powerinfer*' 2>/dev/null || true)
[ -z "$left" ] || fail "purge leaves: $left"
echo "removed and purged: no files left"
