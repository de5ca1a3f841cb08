#!/bin/sh
# Tests the zip of `make zip` in a fresh Debian from which every library that the zip brings along is
# deleted: the program starts, writes the text of the build's program, serves HTTP and HTTPS. Needs root,
# debootstrap and the network; SUITE is the release (default: this machine's).
#   scripts/test-zip.sh BUILD
set -eu
[ $# -eq 1 ] || { echo "usage: $0 BUILD" >&2; exit 2; }
cd "$(dirname "$0")/.."
build=$(cd "$1" && pwd)
. scripts/chroot.sh
zip=$(find "$build" -maxdepth 1 -name 'powerinfer-linux-*.zip')

words="The old lighthouse keeper"
expected=$("$build/powerinfer" run -q -p "$words" -n 5 --temp 0)
chroot_make "$build/chroot" curl
root=$build/chroot
(cd "$root/opt" && unzip -q "$zip")
name=$(basename "$root"/opt/powerinfer-*)
here=$root/opt/$name
program=/opt/$name/bin/powerinfer
ln -s "$program" "$root/usr/bin/powerinfer"
inside() { chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/bin "$@"; }
hub() { inside HF_ENDPOINT=http://127.0.0.1:1 powerinfer run -hf nobody/nothing-GGUF -p a 2>&1; }

# The system's libcurl works next to the zip's libraries. Port 1 has no server.
message=$(hub) && fail "-hf succeeds without a server" || true
case $message in
*"no connection to http://127.0.0.1:1"*) echo "libcurl: opened at run time" ;;
*) fail "-hf with libcurl says: $message" ;;
esac

rm -f "$root"/usr/lib/*/libcurl*
for library in "$here"/lib/powerinfer/*; do
    rm -f "$root"/lib/*/"$(basename "$library")"* "$root"/usr/lib/*/"$(basename "$library")"*
done

same "run -n 5" "$(inside powerinfer run -q -p "$words" -n 5 --temp 0)" "$expected"
status=0
message=$(hub) || status=$?
same "status of -hf without libcurl" "$status" 1
case $message in
*"needs libcurl: libcurl.so.4 not found"*) ;;
*) fail "-hf without libcurl says: $message" ;;
esac

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$root/key.pem" \
    -out "$root/cert.pem" 2>"$root.log"
for scheme in http https; do
    tls=
    [ $scheme = http ] || tls="--ssl-key-file /key.pem --ssl-cert-file /cert.pem"
    # shellcheck disable=SC2086  # the list is meant to be split
    chroot "$root" "$program" serve --port 0 $tls >"$root/said" 2>"$root.log" &
    server=$!
    for _ in $(seq 100); do [ -s "$root/said" ] || sleep 0.1; done
    url=$(sed -n 's/^listening on //p' "$root/said")
    answer=$(curl -sk "$url/v1/completions" -d "{\"prompt\":\"$words\",\"max_tokens\":5,\"temperature\":0}" |
        sed 's/.*"text": *"\([^"]*\)".*/\1/')
    kill "$server"
    wait "$server" || true
    same "$scheme" "$(echo "$words$answer" | tr -s ' ')" "$(echo "$words $expected" | tr -s ' ')"
done
for text in LICENSE jansson.txt gnutls28.txt LGPL-2.1; do
    [ -s "$here/licences/$text" ] || fail "no licences/$text"
done
! grep -n '@[A-Z]*@' "$here/README.md" || fail "README.md has these places that are not filled in"
