#!/bin/sh
# Measures a model on several ranks of this machine, each in a separate network with a latency and a
# rate between them (tests/cluster/slow_network.c), and on one process, in turns. Needs root,
# /dev/net/tun, iproute2 and OpenMPI.
#
#   scripts/measure-cluster.sh MODEL [ARGUMENTS OF bench...]
#   RANKS="2 3" NETWORKS="0:0 0.5:1" scripts/measure-cluster.sh model.gguf -np 1,2,4,8 -n 32 -p 0
#
# NETWORKS: milliseconds one way and Gbit/s, 0:0 is the network as it is. ONE: options of the single
# process (default: -t RANKS, at most the cores). MPI: options of all ranks (default: -t 1). ROUNDS: default
# 3; the table has medians. LLAMA: folder of llama.cpp's programs. Its client computes the first
# layers, rpc-server in the other networks the rest; llama-batched-bench measures several sequences.
# RESULTS: a file to which results are appended; the table then shows all its results.
set -eu
cd "$(dirname "$0")/.."
model=$(realpath "$1")
shift
program=$(realpath "${POWERINFER:-build/powerinfer}")
networks=${NETWORKS:-0:0 0.1:10 0.5:10 0.1:1 0.5:1}
rounds=${ROUNDS:-3}
cores=$(nproc)
id=$$
subnet=10.97.$((id % 250))
work=$(mktemp -d)
servers=
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

stop_servers() {
    for s in $servers; do
        kill "$s" 2>/dev/null || true
        wait "$s" 2>/dev/null || true
    done
    servers=
}
leave() {
    stop_servers
    [ -z "${network:-}" ] || kill "$network" 2>/dev/null || true
    [ -z "${network:-}" ] || wait "$network" 2>/dev/null || true
    network=
    for i in $(seq 8); do ip netns del "pi$id-$i" 2>/dev/null || true; done
}
trap 'leave; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() {
    echo "measure-cluster: $1" >&2
    exit 1
}

${CC:-cc} -O2 -D_GNU_SOURCE -o "$work/slow_network" tests/cluster/slow_network.c

# Ranks are at .1, .2, ..., the launcher at .254.
join() { # ranks milliseconds Gbit/s
    names=""
    device=slow$((id % 100000))
    rm -f "$work/hosts"
    for i in $(seq "$1"); do
        ip netns add "pi$id-$i"
        names="$names pi$id-$i"
        echo "$subnet.$i slots=1" >>"$work/hosts"
    done
    # shellcheck disable=SC2086  # words
    "$work/slow_network" join "$2" "$3" $names "-$device" >"$work/joined" &
    network=$!
    for _ in $(seq 100); do
        grep -q ready "$work/joined" && break
        sleep 0.05
    done
    grep -q ready "$work/joined" || fail "the networks do not start"
    for i in $(seq "$1"); do
        ip -n "pi$id-$i" addr add "$subnet.$i/24" dev slow0
        ip -n "pi$id-$i" link set slow0 mtu 65520 txqueuelen 10000 up
        ip -n "pi$id-$i" link set lo up
    done
    ip addr add "$subnet.254/24" dev "$device"
    ip link set "$device" mtu 65520 txqueuelen 10000 up
    ip netns exec "pi$id-2" "$work/slow_network" echo 7777 &
    servers=$!
    sleep 0.3
    reached=$(ip netns exec "pi$id-1" "$work/slow_network" probe "$subnet.2" 7777)
    stop_servers
    echo "$1 ranks, $2 ms and $3 Gbit/s: round trip of a byte ${reached% *} ms, stream ${reached#* } Gbit/s" >&2
}

# mpirun starts its daemon of a host by this agent, which enters the host's network. Daemons that create
# the same folder at the same time fail, so each has its own.
cat >"$work/agent" <<AGENT
#!/bin/sh
host=\$1
shift
export TMPDIR=$work/\${host##*.}
mkdir -p "\$TMPDIR"
exec ip netns exec pi$id-\${host##*.} sh -c "\$*"
AGENT
chmod +x "$work/agent"

# Appends lines to the results.
keep() {
    tee -a "$work/all" ${RESULTS:+"$RESULTS"} >/dev/null
}
# Lines "ranks|ms|Gbit/s|program|test|sequences|tokens/s" from the columns test, parallel, tps of bench's CSV.
note() { # program
    awk -F, -v OFS='|' -v key="$ranks|$ms|$gbit|$1" '{ gsub("\"", "") }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { print key, $at["test"], $at["parallel"], $at["tps"] }' | keep
}
staged() {
    # shellcheck disable=SC2086
    mpirun --mca plm_rsh_agent "$work/agent" --mca btl tcp,self --mca btl_tcp_if_include "$subnet.0/24" \
        --mca oob_tcp_if_include "$subnet.0/24" --hostfile "$work/hosts" --map-by node --bind-to none \
        -n "$ranks" "$program" bench -q -o csv -m "$model" ${MPI:--t 1} "$@"
}

# llama.cpp: the same tests, one by one; the last ranks' share of the layers is offloaded.
layers=
remote() { # test sequences
    hosts=""
    n=${1#??}
    for i in $(seq 2 "$ranks"); do hosts="$hosts,$subnet.$i:50052"; done
    common="-m $model --rpc ${hosts#,} -ngl $((layers * (ranks - 1) / ranks)) -t 1"
    case $1 in
    pp*) set -- "-p $n -n 0" "$2" ;;
    tg*) set -- "-p 0 -n $n" "$2" ;;
    esac
    if [ "$2" = 1 ]; then
        # shellcheck disable=SC2086
        ip netns exec "pi$id-1" "$LLAMA/llama-bench" $common $1 -r 1 -o jsonl |
            sed -n 's/.*"avg_ts": \([0-9.]*\).*/\1/p'
    elif [ -x "$LLAMA/llama-batched-bench" ] && [ "${1#-p 0}" != "$1" ]; then
        # S_TG is the eighth column of the table.
        # shellcheck disable=SC2086
        ip netns exec "pi$id-1" "$LLAMA/llama-batched-bench" $common -c 8192 -npp 16 -ntg "$n" -npl "$2" |
            awk -F'|' -v b="$2" '$4 + 0 == b { print $9 + 0 }'
    fi
}
compare() {
    layers=$("$program" inspect --json "$model" | sed -n 's/.*"layers": *\([0-9]*\).*/\1/p' | head -1)
    [ -n "$layers" ] || fail "no number of layers"
    rpc_server=$LLAMA/rpc-server
    [ -x "$rpc_server" ] || rpc_server=$LLAMA/ggml-rpc-server
    for i in $(seq 2 "$ranks"); do
        ip netns exec "pi$id-$i" "$rpc_server" -t 1 -H 0.0.0.0 -p 50052 >"$work/rpc-$i" 2>&1 &
        servers="$servers $!"
    done
    sleep 1
    awk -F'|' -v r="$ranks" '$1 == r && $4 ~ /ranks/ { print $5, $6 }' "$work/all" | sort -u >"$work/tests"
    while read -r test sequences; do
        tps=$(remote "$test" "$sequences" 2>"$work/llama.err" </dev/null)
        [ -z "$tps" ] || echo "$ranks|$ms|$gbit|llama.cpp RPC|$test|$sequences|$tps" | keep
    done <"$work/tests"
    stop_servers
}

[ $# -gt 0 ] || set -- -np 1,2,4,8 -p 0 -n 32 -r 1
for ranks in ${RANKS:-2}; do
    threads=$((ranks < cores ? ranks : cores))
    for _ in $(seq "$rounds"); do
        for network_options in $networks; do
            ms=${network_options%:*} gbit=${network_options#*:}
            # shellcheck disable=SC2086
            "$program" bench -q -o csv -m "$model" ${ONE:--t $threads} "$@" | note "one process"
            join "$ranks" "$ms" "$gbit"
            staged "$@" | note ranks
            [ -z "${LLAMA:-}" ] || compare
            leave
        done
    done
done

# Medians; a row per network and program, a column per test.
sort -t'|' -k1,6 -k7n "${RESULTS:-$work/all}" | awk -F'|' '
    { key = $1 FS $2 FS $3 FS $4; test = $5 ($6 > 1 ? " x" $6 : ""); n[key, test]++; v[key, test, n[key, test]] = $7
      if (!(key in rows)) { rows[key] = ++n_rows; row[n_rows] = key }
      if (!(test in tests)) { tests[test] = ++n_tests; name[n_tests] = test } }
    END {
        printf "| ranks | ms | Gbit/s | program |"; for (t = 1; t <= n_tests; t++) printf " %s |", name[t]
        printf "\n|---|---|---|---|"; for (t = 1; t <= n_tests; t++) printf "---:|"; print ""
        for (r = 1; r <= n_rows; r++) {
            split(row[r], k, FS); printf "| %s | %s | %s | %s |", k[1], k[2], k[3], k[4]
            for (t = 1; t <= n_tests; t++) {
                c = n[row[r], name[t]]
                if (c) printf " %.1f |", (v[row[r], name[t], int((c + 1) / 2)] + v[row[r], name[t], int(c / 2) + 1]) / 2
                else printf " - |"
            }
            print ""
        }
    }'
