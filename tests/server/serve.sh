#!/bin/sh
# serve.sh PROGRAM FOLDER: tests how the command serve starts, ends, and refuses.
set -eu
program=$1 folder=$2
mkdir -p "$folder"
cd "$folder"

fail() {
    echo "FAILED: $1"
    cat out err
    exit 1
}

# Wrong command lines: status and words of the message.
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
wrong 1 "No such file" --path no-such-folder
wrong 2 "not a folder: --slot-save-path" --slot-save-path "$program"
wrong 2 "expected a path such as /llm" --api-prefix llm
wrong 2 "expected a JSON object" --chat-template-kwargs '[]'
wrong 1 "chat-template-kwargs" --port 0 --chat-template-kwargs '{"a":}'
wrong 2 "a larger -c" --context-shift
wrong 2 "multimodal" --mmproj x
wrong 1 "No such file" --models no-such-folder
mkdir -p models/folder empty
ln -sf "$(dirname "$program")/../models/novella-7m.q8_0.powerinfer.gguf" models/small.gguf
ln -sf ../small.gguf models/folder/part-00001-of-00001.gguf
wrong 1 "no models" --models empty
wrong 2 "-m and --models" --models models -m models/small.gguf
list() { # lines of a list
    printf '%s\n' "$@" >list.ini
}
list '[x]' 'ctx-size = 256'
wrong 2 "model x: no file of that name" --models list.ini
list '[x]' 'model = models/small.gguf' 'ctx-sizes = 256'
wrong 2 "list.ini:3: ctx-sizes" --models list.ini
list '[x]' 'port = 80'
wrong 2 "whole server: list.ini:2: port" --models list.ini
list '[x]' 'ctx-size = many'
wrong 2 "model x: invalid value" --models models --models list.ini
list '[x' 'a = b'
wrong 2 "list.ini:1" --models list.ini
list 'version = 2'
wrong 1 "expected 1" --models list.ini
printf 'secret-1 rpm=fast\n' >keys
wrong 1 "invalid setting of key 1: keys: \"rpm\"" --api-key-file keys
grep -q secret err && fail "the message shows the key"
printf ' \t\n\t# comment\n' >keys
wrong 2 "the key is empty" --api-key-file keys
list '[x]' 'alias = small' 'model = models/small.gguf'
wrong 2 "two models have the name small" --models models --models list.ini

start() { # options...
    : >out # the background process might truncate the previous server's only after it was read
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

# Several models: names, options of a list, limits of keys, log lines.
if command -v curl >/dev/null; then
    list 'version = 1' '[*]' 'np = 1' 'jinja = true' '[small]' 'alias = tiny, little' 'c = 64' \
        'load-on-startup = yes'
    printf '# keys\n  \n  secret-1 name=ci rpm=3\nsecret-2\n' >keys
    start --models models --models list.ini --models-max 1 --chat-template chatml --log-json \
        --api-key-file keys
    ask() { # status key path curl's options...
        want=$1 key=$2 path=$3
        shift 3
        got=$(curl -s -o answer -w '%{http_code}' -H "x-api-key: $key" "http://127.0.0.1:$port$path" "$@" || :)
        [ "$got" = "$want" ] || fail "$path $*: status $got, not $want"
    }
    ask 401 "" /v1/models
    ask 200 secret-2 /v1/completions -d '{"model":"little","prompt":"Once","max_tokens":2}'
    ask 200 secret-2 '/props?model=small'
    grep -q '"n_ctx":128,' answer || fail "the command line does not override the list"
    grep -q '"total_slots":2' answer || fail "the command line does not override [*]"
    ask 200 secret-2 /v1/completions -d '{"model":"folder","prompt":"Once","max_tokens":2}'
    ask 200 secret-2 /v1/models
    grep -q '"id":"small","aliases":\["tiny","little"\].*"value":"unloaded"' answer || fail "the list of models"
    ask 404 secret-2 /v1/completions -d '{"model":"other","prompt":"Once"}'
    for want in 200 200 200 429; do
        ask $want secret-1 /v1/completions -d '{"prompt":"Once","max_tokens":1}'
    done
    kill -TERM $server
    wait $server || fail "exit status with several models"
    grep -q '"route":"/v1/completions","model":null,"key":"ci","status":429' err || fail "no log line"
    grep -q secret err && fail "the log has a key"
fi

# HTTPS, with a certificate for loopback names, and with files that are not a valid certificate.
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
    wrong 1 "certificate does not belong to the key" --port 0 --ssl-key-file other.pem --ssl-cert-file cert.pem
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

# Command lines with which guides and containers start llama.cpp's server.
if command -v curl >/dev/null; then
    mkdir -p saved
    printf '# comment\nfirst\n\nsecond\n' >keys
    LLAMA_ARG_ALIAS=own LLAMA_ARG_FLASH_ATTN=on LLAMA_ARG_ENDPOINT_METRICS=1 LLAMA_ARG_NO_WEBUI=1 \
        start -ngl 99 -fa on -cb --jinja --no-mmproj --embeddings --reasoning-format none \
        --reasoning-budget 0 --chat-template-kwargs '{"a":1}' --cache-reuse 256 --threads-http 4 \
        --no-context-shift -sps 0.5 -cram 2048 --slot-save-path saved --api-prefix /v --metrics \
        --api-key-file keys --slots --props -to 30 --log-colors off --models-max 1 --cpu-moe
    check() { # status path curl's options...
        want=$1 path=$2
        shift 2
        got=$(curl -s -o answer -w '%{http_code}' "$@" "http://127.0.0.1:$port$path" || :)
        [ "$got" = "$want" ] || fail "$path: status $got, not $want"
    }
    check 200 /v/v1/models -H 'x-api-key: second'
    grep -q '"id":"own"' answer || fail "not the name of LLAMA_ARG_ALIAS"
    check 401 /v/v1/models -H 'x-api-key: # comment'
    check 404 /v/ -H 'x-api-key: first'
    check 200 /v/completion -H 'x-api-key: first' -d '{"prompt":"Once upon","n_predict":2,"id_slot":1}'
    check 200 '/v/slots/1?action=save' -H 'x-api-key: first' -d '{"filename":"one.bin"}'
    [ -s saved/one.bin ] || fail "no saved slot"
    kill "$server"
    wait "$server" || fail "status $? after SIGTERM"
    grep -q '^powerinfer: no effect here: LLAMA_ARG_.* -fa, -cb, --jinja, --no-mmproj, --embeddings, --cache-reuse' err ||
        fail "no line of what has no effect"
    [ "$(grep -c 'no effect' err)" = 1 ] || fail "more than one line of what has no effect"
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
