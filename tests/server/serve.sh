#!/bin/sh
# The command as it is typed: serve.sh PROGRAM FOLDER. How it starts, ends, and refuses.
set -eu
program=$1 folder=$2
mkdir -p "$folder"
cd "$folder"

fail() {
    echo "FAILED: $1"
    cat out err
    exit 1
}

# Wrong command lines: status, and the words of the message.
wrong() { # status words options...
    want=$1 words=$2
    shift 2
    status=0
    "$program" serve "$@" >out 2>err || status=$?
    [ "$status" = "$want" ] || fail "serve $*: status $status"
    grep -q -- "$words" err || fail "serve $*: no \"$words\""
    [ ! -s out ] || fail "serve $*: something on standard output"
}
wrong 2 "two templates" --chat-template chatml --chat-template-file x
wrong 2 "the key is empty" --api-key ""
wrong 2 "too small" -c 3 -np 4
wrong 2 "from 0 to 65535" --port 65536
wrong 1 "no chat template has the name" --port 0 --chat-template nope
wrong 1 "cannot listen" --host 192.0.2.1 --port 0
wrong 1 "" -m no-such-file.gguf
wrong 2 "there are no keys" --isolate-keys

start() { # options...
    "$program" serve --port 0 -c 256 -np 2 "$@" >out 2>err &
    server=$!
    for _ in $(seq 600); do
        grep -q listening out && break
        sleep 0.1
    done
    port=$(sed 's/.*://' out)
}
trap 'kill $server 2>/dev/null || :' EXIT
server=

# HTTPS, with a certificate for loopback names, and the files that do not make one.
if command -v openssl >/dev/null && command -v curl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null
    openssl genrsa -out other.pem 2048 2>/dev/null
    printf -- '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n' >damaged.pem
    wrong 2 "needs both" --ssl-key-file key.pem
    wrong 2 "needs both" --ssl-cert-file cert.pem
    wrong 1 "No such file" --ssl-key-file key.pem --ssl-cert-file none.pem
    wrong 1 "no PEM block PRIVATE KEY" --ssl-key-file cert.pem --ssl-cert-file cert.pem
    wrong 1 "no PEM block CERTIFICATE" --ssl-key-file key.pem --ssl-cert-file key.pem
    wrong 1 "certificate is not the key's" --port 0 --ssl-key-file other.pem --ssl-cert-file cert.pem
    wrong 1 "damaged" --port 0 --ssl-key-file key.pem --ssl-cert-file damaged.pem
    start --ssl-key-file key.pem --ssl-cert-file cert.pem
    grep -qE '^listening on https://127\.0\.0\.1:[1-9][0-9]*$' out || fail "no https in the address"
    ask() { # status curl's options...
        want=$1
        shift
        got=$(curl -s -o answer -w '%{http_code}' --cacert cert.pem "$@" || :)
        [ "$got" = "$want" ] || fail "$*: status $got, not $want"
    }
    ask 200 "https://localhost:$port/health"
    ask 200 "https://127.0.0.1:$port/v1/completions" -d '{"prompt":"Once","max_tokens":3}'
    ask 200 "https://127.0.0.1:$port/v1/completions" -d '{"prompt":"Once","max_tokens":3,"stream":true}'
    grep -q 'DONE' answer || fail "the stream has no end"
    ask 200 "https://localhost:$port/health" -H "Origin: https://127.0.0.1:$port"
    ask 403 "https://localhost:$port/health" -H "Origin: http://localhost:$port"
    ask 000 "https://localhost:$port/health" --tls-max 1.1
    ask 000 "http://localhost:$port/health"
    kill "$server"
    wait "$server" || fail "status $? after SIGTERM"
else
    echo "HTTPS is not tested: there is no openssl or no curl"
fi

start
grep -qE '^listening on http://127\.0\.0\.1:[1-9][0-9]*$' out || fail "no line with the address"
[ "$(wc -l <out)" = 1 ] || fail "more than one line"
cp out first
wrong 1 "cannot listen" --port "$port"
kill "$server"
status=0
wait "$server" || status=$?
trap - EXIT
[ "$status" = 0 ] || fail "status $status after SIGTERM"
