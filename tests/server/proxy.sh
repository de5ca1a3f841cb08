#!/bin/sh
# The examples of examples/serve, changed only in names, paths and ports: nginx provides TLS in
# front of the server that the systemd unit's command starts. proxy.sh PROGRAM FOLDER. Without
# nginx, openssl or curl the test is skipped (77).
set -eu
program=$1 folder=$2
examples=$(cd "$(dirname "$0")/../../examples/serve" && pwd)
for tool in nginx openssl curl; do
    command -v $tool >/dev/null 2>&1 || { echo "SKIPPED: there is no $tool"; exit 77; }
done
mkdir -p "$folder"
cd "$folder"
rm -f address out
servers=
trap 'for s in $servers; do kill $s 2>/dev/null || :; done' EXIT

fail() {
    echo "FAILED: $1"
    cat messages error.log 2>/dev/null
    exit 1
}

# ---- the unit -----------------------------------------------------------------------------------
command=$(sed -n 's/^ExecStart=//p' "$examples/powerinfer.service")
echo "sesame" >keys
[ "${command%% *}" = /usr/local/bin/powerinfer ] || fail "the unit starts ${command%% *}"
options=$(echo "${command#* }" | sed -e 's| -m [^ ]*||' -e 's|--port [0-9]*|--port 0|' \
    -e "s|\${CREDENTIALS_DIRECTORY}|$folder|")
# shellcheck disable=SC2086  # options of a command line
"$program" $options --chat-template chatml >address 2>messages &
server=$!
servers=$server
for _ in $(seq 600); do
    grep -q listening address && break
    kill -0 $server || fail "the unit's command: $options"
    sleep 0.1
done
port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' address)
if command -v systemd-analyze >/dev/null 2>&1; then
    sed "s|/usr/local/bin/powerinfer|$program|" "$examples/powerinfer.service" >powerinfer.service
    systemd-analyze verify "$folder/powerinfer.service" 2>verify ||
        { cat verify; fail "systemd-analyze finds mistakes in the unit"; }
    if grep -q "powerinfer.service:" verify; then cat verify; fail "systemd-analyze complains"; fi
fi

# ---- nginx --------------------------------------------------------------------------------------
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=llm.example.org \
    -keyout key.pem -out cert.pem 2>/dev/null
start_nginx() { # port
    sed -e "s|listen 443 ssl|listen 127.0.0.1:$1 ssl|" -e "s|127.0.0.1:8080|127.0.0.1:$port|" \
        -e "s|/etc/ssl/certs/llm.example.org.pem|$folder/cert.pem|" \
        -e "s|/etc/ssl/private/llm.example.org.key|$folder/key.pem|" \
        "$examples/nginx.conf" >site.conf
    cat >nginx.conf <<END
daemon off;
worker_processes 1;
pid $folder/nginx.pid;
error_log $folder/error.log;
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path $folder/body;
    proxy_temp_path $folder/proxy;
    fastcgi_temp_path $folder/fastcgi;
    uwsgi_temp_path $folder/uwsgi;
    scgi_temp_path $folder/scgi;
    include $folder/site.conf;
}
END
    nginx -p "$folder" -c "$folder/nginx.conf" 2>nginx.err &
    proxy=$!
}
front=
for try in 18443 28443 38443 48443; do # the first free port
    start_nginx $try
    for _ in $(seq 50); do
        curl -sk -o /dev/null "https://127.0.0.1:$try/health" && front=$try && break
        kill -0 $proxy 2>/dev/null || break
        sleep 0.1
    done
    [ -z "$front" ] || break
done
[ -n "$front" ] || { cat nginx.err; fail "nginx does not start"; }
servers="$server $proxy"

site=https://llm.example.org:$front
ask() { # path curl's options...
    path=$1
    shift
    curl -s --cacert cert.pem --resolve "llm.example.org:$front:127.0.0.1" "$@" "$site$path"
}
status() { ask "$@" -o out -w '%{http_code}'; }
expect() { # status path options...
    want=$1
    shift
    got=$(status "$@")
    [ "$got" = "$want" ] || fail "$*: status $got, not $want"
}
chat='{"messages":[{"role":"user","content":"Hello"}],"max_tokens":3}'
key='Authorization: Bearer sesame'
# curl refuses the certificate, which is for another name: the answer comes over TLS.
expect 200 /
grep -q "<title>PowerInfer</title>" out || fail "no page"
expect 200 /health
expect 401 /v1/models
expect 200 /v1/models -H "$key"
expect 200 /v1/chat/completions -H "$key" -d "$chat"
# The page served through the proxy may send requests; a page of another site may not.
expect 200 /v1/chat/completions -H "$key" -H "Origin: $site" -d "$chat"
expect 403 /v1/chat/completions -H "$key" -H "Origin: https://example.com" -d "$chat"
expect 403 /metrics -H "$key"
expect 403 /slots -H "$key"
head -c 34000000 /dev/zero >big
expect 413 /v1/chat/completions -H "$key" -H 'Expect:' --data-binary @big
rm big

# Events arrive one by one: part of the answer arrives before its end.
ask /v1/chat/completions -N -H "$key" \
    -d '{"messages":[{"role":"user","content":"Hello"}],"stream":true,"ignore_eos":true,"temperature":0}' >stream &
reader=$!
partial=no
for _ in $(seq 1000); do
    if [ -s stream ] && ! grep -q 'DONE' stream; then partial=yes; break; fi
    kill -0 $reader 2>/dev/null || break
    sleep 0.01
done
[ $partial = yes ] || fail "the stream came in one piece"
wait $reader || fail "the stream broke off"
grep -q 'DONE' stream || fail "the stream has no end"

# When a client leaves the proxy, the proxy leaves the server.
ask /v1/chat/completions -N -m 0.3 -H "$key" \
    -d '{"messages":[{"role":"user","content":"Hi"}],"stream":true,"ignore_eos":true}' >out || :
for _ in $(seq 100); do
    busy=$(curl -s -H "$key" "http://127.0.0.1:$port/slots" | grep -c '"is_processing":true' || :)
    [ "$busy" = 0 ] && break
    sleep 0.1
done
[ "$busy" = 0 ] || fail "the server goes on for a client that has left"

kill $proxy
kill $server
wait $server || fail "the server ended with $?"
servers=
echo "1 passed, 0 failed"
