#!/bin/sh
# Three replicas behind examples/serve/replicas.conf, changed only in ports: 32 clients ask while one
# replica is killed and another one drains. No request may be lost that had not begun to answer.
# replicas.sh PROGRAM FOLDER. Without nginx or curl the test is skipped (77).
set -eu
program=$1 folder=$2
examples=$(cd "$(dirname "$0")/../../examples/serve" && pwd)
for tool in nginx curl; do
    command -v $tool >/dev/null 2>&1 || { echo "SKIPPED: there is no $tool"; exit 77; }
done
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
servers= proxy=
# nginx ends its workers only on SIGTERM
trap 'touch stop; [ -z "$proxy" ] || kill $proxy 2>/dev/null || :; for s in $servers; do kill -9 $s 2>/dev/null || :; done' EXIT

fail() {
    echo "FAILED: $1"
    cat messages.* error.log 2>/dev/null | tail -30
    exit 1
}

# ---- replicas and nginx -------------------------------------------------------------------------
start_replica() { # number [port]
    "$program" serve --port "${2:-0}" -np 8 -c 32768 -t 1 --temp 0 --chat-template chatml --drain 100 \
        >address.$1 2>messages.$1 &
    eval "replica$1=$!"
    servers="$servers $!"
}
find_port() { # number
    for _ in $(seq 600); do
        grep -q listening address.$1 && break
        sleep 0.1
    done
    eval "port$1=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' address.$1)"
}
for i in 1 2 3; do start_replica $i; done
for i in 1 2 3; do find_port $i; done
[ -n "$port1" ] && [ -n "$port2" ] && [ -n "$port3" ] || fail "a replica does not start"

start_nginx() { # port
    sed -e "s|listen 80;|listen 127.0.0.1:$1;|" -e "s|127.0.0.1:8081|127.0.0.1:$port1|" \
        -e "s|127.0.0.1:8082|127.0.0.1:$port2|" -e "s|127.0.0.1:8083|127.0.0.1:$port3|" \
        "$examples/replicas.conf" >site.conf
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
for _ in 1 2 3; do # the port that the kernel gave to a server which has ended, unless it is taken meanwhile
    start_replica 0
    find_port 0
    kill -9 $replica0
    wait $replica0 || :
    start_nginx "$port0"
    for _ in $(seq 50); do
        ! grep -q 'bind()' nginx.err error.log 2>/dev/null || break
        curl -s -o out "http://127.0.0.1:$port0/health" && front=$port0 && break
        sleep 0.1
    done
    [ -z "$front" ] || break
    kill $proxy 2>/dev/null || :
    rm -f error.log
done
[ -n "$front" ] || { cat nginx.err; fail "nginx does not start"; }
site=http://127.0.0.1:$front

metric() { # port name
    curl -s "http://127.0.0.1:$1/metrics" | sed -n "s/^powerinfer_$2 //p"
}

# ---- the names of the alert rules ---------------------------------------------------------------
curl -s "http://127.0.0.1:$port1/metrics" >metrics
for name in $(grep -o 'powerinfer_[a-z_]*' "$examples/alerts.yml" | sort -u); do
    grep -q "^$name[{ ]" metrics || fail "alerts.yml: /metrics has no $name"
done

# ---- one session, one replica -------------------------------------------------------------------
short='{"prompt":"Once upon a time","max_tokens":2}'
for session in red green blue; do
    before="$(metric $port1 requests_total) $(metric $port2 requests_total) $(metric $port3 requests_total)"
    for _ in 1 2 3 4 5 6; do
        curl -s -f -o out -H "X-Session: $session" -d "$short" "$site/v1/completions" ||
            fail "a request with X-Session"
    done
    after="$(metric $port1 requests_total) $(metric $port2 requests_total) $(metric $port3 requests_total)"
    # shellcheck disable=SC2086  # six numbers
    echo $before $after | awk '{ for (i = 1; i <= 3; i++) if ($(i + 3) == $i + 6) n++; exit n != 1 }' ||
        fail "session $session: requests per replica were $before, then $after"
done

# ---- a request that makes replicas crash --------------------------------------------------------
# The replica that computes the request is killed, twice: the request ends, and one replica is left.
crashing() { # the number of the replica that computes
    for _ in $(seq 300); do
        for i in $alive; do
            eval "port=\$port$i"
            [ "$(metric "$port" requests_processing)" = 0 ] || { echo "$i"; return; }
        done
        sleep 0.02
    done
}
curl -s -o crashed -w '%{http_code}' -H "X-Session: crash" \
    -d '{"prompt":"Once","n_predict":3900,"ignore_eos":true}' "$site/completion" >crashed.code &
crash=$!
alive="1 2 3"
for _ in 1 2; do
    victim=$(crashing)
    [ -n "$victim" ] || fail "no replica computes the request: $(cat crashed.code; head -c 300 crashed)"
    eval "kill -9 \$replica$victim"
    alive=$(echo "$alive" | tr -d "$victim")
done
wait $crash || fail "curl of the request that crashes replicas"
[ "$(cat crashed.code)" = 503 ] || fail "a request that crashed two replicas: $(cat crashed.code; head -c 300 crashed)"
[ "$(metric "$(eval "echo \$port$(echo $alive)")" requests_total)" != "" ] || fail "the third replica crashed"
for _ in 1 2 3 4 5 6; do
    curl -s -f -o out -d "$short" "$site/v1/completions" || fail "a request to the third replica"
done
for i in 1 2 3; do
    eval "port=\$port$i"
    case " $alive " in *" $i "*) continue ;; esac
    start_replica $i "$port"
done
for i in 1 2 3; do find_port $i; done
sleep 3 # nginx tries the replicas again

# ---- 32 clients ---------------------------------------------------------------------------------
# A client writes one line per request: good; cut: the answer had begun; lost.
client() { # number
    round=0
    while ! [ -e stop ]; do
        round=$((round + 1))
        stream=$([ $((($1 + round) % 2)) = 0 ] && echo true || echo false)
        rm -f answer.$1
        status=0
        code=$(curl -s -N -o answer.$1 -w '%{http_code}' -H "X-Session: $1-$((round % 8))" \
            -d "{\"prompt\":\"Client $1 asks\",\"max_tokens\":32,\"ignore_eos\":true,\"stream\":$stream}" \
            "$site/v1/completions") || status=$?
        if [ $status = 0 ] && [ "$code" = 200 ] && grep -q 'finish_reason":"length"' answer.$1; then
            echo good
        elif [ $stream = true ] && [ "$code" = 200 ] && grep -q '^data: ' answer.$1; then
            echo cut
        else
            echo "lost: status $code, curl $status, stream $stream, round $round: $(head -c 300 answer.$1 2>/dev/null)"
        fi
    done >log.$1
}
clients=
for i in $(seq 32); do
    client $i &
    clients="$clients $!"
done
count() { cat log.* | grep -c "^$1" || :; }
wait_for() { # number of good answers from now on
    target=$(($(count good) + $1))
    for _ in $(seq 600); do
        [ "$(count good)" -lt $target ] || return 0
        sleep 0.1
    done
    fail "$(count good) answers, not $target"
}
wait_for 100
# Answers of the first replica are running when it is killed.
for _ in $(seq 500); do
    [ "$(metric $port1 requests_processing)" -lt 2 ] || break
done
kill -9 "$replica1"
wait_for 100
cut=$(count cut)

# The second replica drains: a long answer ends, new requests are refused.
curl -s -N -o long -d '{"prompt":"Once","n_predict":1500,"ignore_eos":true,"stream":true}' \
    "http://127.0.0.1:$port2/completion" &
long=$!
for _ in $(seq 200); do [ -s long ] && break; sleep 0.05; done
kill -TERM "$replica2"
for _ in $(seq 100); do
    code=$(curl -s -o health -w '%{http_code}' "http://127.0.0.1:$port2/health" || :)
    [ "$code" = 200 ] || break
    sleep 0.02
done
[ "$code" = 503 ] && grep -q '"status":"draining"' health || fail "health while draining: $code $(cat health)"
[ "$(metric $port2 draining)" = 1 ] || fail "the metric draining"
curl -s -D headers -o out -d "$short" "http://127.0.0.1:$port2/v1/completions" || :
grep -q '^HTTP/1.1 503' headers && grep -qi '^retry-after: ' headers || fail "no 503 with Retry-After: $(cat headers)"
wait $long || fail "draining broke off an answer"
[ "$(grep -c '^data: ' long)" -ge 100 ] && grep -q '"stop":true' long || fail "draining ended an answer"
status=0
wait "$replica2" || status=$?
[ $status = 0 ] || fail "the drained replica ended with $status"
wait_for 100
touch stop
for c in $clients; do wait "$c"; done

[ "$(count lost)" = 0 ] || { grep -h lost log.*; fail "lost requests"; }
[ "$(count cut)" = "$cut" ] || fail "draining cut $(($(count cut) - cut)) answers"
[ "$cut" -le 32 ] || fail "the killed replica cut $cut answers"
kill "$replica3"
wait "$replica3" || fail "the last replica ended with $?"
for _ in 1 2; do # the first request finds that no replica answers, the second one knows it
    curl -s -D headers -o out -d "$short" "$site/v1/completions" || :
    grep -q '^HTTP/1.1 503' headers && grep -qi '^retry-after: ' headers && grep -q '"code":503' out ||
        fail "without replicas: $(cat headers out)"
done
kill "$proxy"
servers=
echo "$(count good) answers, $cut cut by the kill, none lost"
