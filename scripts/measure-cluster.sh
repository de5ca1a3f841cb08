#!/bin/sh
# Measures a model on several ranks of this machine, each in a network of its own (ip netns), with a
# latency and a rate between them (tc netem). Needs root, iproute2 and OpenMPI.
#
#   scripts/measure-cluster.sh MODEL [RANKS] [DELAY_MS] [RATE] [ARGUMENTS OF bench...]
#   scripts/measure-cluster.sh model.gguf 2 0.5 1gbit -p 512 -n 64 -r 3 -t 1
#
# DELAY_MS: one way, 0: none. RATE: as tc takes it; "none": not limited. With LLAMA_BENCH and
# LLAMA_RPC in the environment, the commands of llama.cpp's benchmark and of a server on the address that
# is appended ("llama-bench -t 1", "rpc-server -H 0.0.0.0 -p 50052"), both programs are measured in turns;
# the server runs in the second network, ROUNDS times (default 3).
set -eu
cd "$(dirname "$0")/.."
model=$1 ranks=${2:-2} delay=${3:-0} rate=${4:-none}
[ $# -le 4 ] && set -- || shift 4
program=${POWERINFER:-build/powerinfer}
rounds=${ROUNDS:-3}
id=$$
work=$(mktemp -d)
bridge=pib$id
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

finish() {
    [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
    for i in $(seq 1 "$ranks"); do ip netns del "pi$id-$i" 2>/dev/null || true; done
    ip link del "$bridge" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT INT TERM

fail() {
    echo "measure-cluster: $1" >&2
    exit 1
}

# The launcher is at .254; the ranks are at .1, .2, ...
subnet=10.99.$((id % 250))
ip link add "$bridge" type bridge
ip addr add "$subnet.254/24" dev "$bridge"
ip link set "$bridge" up
for i in $(seq 1 "$ranks"); do
    space=pi$id-$i link=pi$i-$id
    ip netns add "$space"
    ip link add "$link" type veth peer name eth0 netns "$space"
    ip link set "$link" master "$bridge" up
    ip -n "$space" addr add "$subnet.$i/24" dev eth0
    ip -n "$space" link set eth0 up
    ip -n "$space" link set lo up
    limits=
    [ "$delay" = 0 ] || limits="delay ${delay}ms"
    [ "$rate" = none ] || limits="$limits rate $rate"
    # shellcheck disable=SC2086  # words
    [ -z "$limits" ] || ip netns exec "$space" tc qdisc add dev eth0 root netem $limits limit 100000 ||
        fail "no netem: the kernel needs its module sch_netem"
    echo "$subnet.$i slots=1" >>"$work/hosts"
done

# mpirun starts its daemon of a host by this agent, which enters the host's network.
cat >"$work/agent" <<AGENT
#!/bin/sh
host=\$1
shift
exec ip netns exec pi$id-\${host##*.} sh -c "\$*"
AGENT
chmod +x "$work/agent"

ours() {
    mpirun --mca plm_rsh_agent "$work/agent" --mca btl tcp,self --mca btl_tcp_if_include "$subnet.0/24" \
        --mca oob_tcp_if_include "$subnet.0/24" --hostfile "$work/hosts" --map-by node --bind-to none \
        -n "$ranks" "$(realpath "$program")" bench -q -m "$(realpath "$model")" "$@"
}

for round in $(seq 1 "$rounds"); do
    echo "round $round: $ranks ranks, $delay ms, $rate"
    ours "$@"
    [ -n "${LLAMA_BENCH:-}" ] || continue
    # shellcheck disable=SC2086
    ip netns exec "pi$id-2" ${LLAMA_RPC:?} >"$work/rpc" 2>&1 &
    server=$!
    sleep 1
    # shellcheck disable=SC2086
    ip netns exec "pi$id-1" $LLAMA_BENCH -m "$model" -rpc "$subnet.2:50052"
    kill "$server"
    wait "$server" 2>/dev/null || true
    server=
done
