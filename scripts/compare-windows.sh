#!/bin/sh
# Compares the speed of the Windows build, under wine, with that of the Linux build on this machine. The
# two run in turn; nothing else should run. Prints the median of each test and the ratio.
#   scripts/compare-windows.sh [-d FILE] LINUX WINDOWS TURNS OPTIONS...
# LINUX, WINDOWS: the programs; OPTIONS: of `powerinfer bench`, such as -m FILE. With --ram-budget the
# read rate, and its share of the rate that the drive can give, are compared as well. wine has no reads
# past the page cache, so -d drops FILE from the cache five times a second, for both programs. wine
# keeps shared memory in a file in /tmp; if root runs this script, its /tmp is empty and in memory.
set -eu
if unshare -m true 2>/dev/null && [ -z "${COMPARE_INSIDE:-}" ]; then
    case "$PWD/ $*" in
    /tmp/* | *" /tmp/"*) echo "$0: files in /tmp: this script hides that folder" >&2; exit 2 ;;
    esac
    export COMPARE_INSIDE=1
    exec unshare -m sh -c 'mount -t tmpfs -o mode=1777 wine /tmp && exec "$@"' sh "$0" "$@"
fi
dropped=
if [ "${1:-}" = -d ]; then
    dropped=$2
    shift 2
fi
if [ $# -lt 5 ]; then
    sed -n 's/^#   //p' "$0" >&2
    exit 2
fi
linux=$1 windows=$2 turns=$3
shift 3
rows=$(mktemp)
dropper=
trap 'rm -f "$rows"; [ -z "$dropper" ] || kill "$dropper"' EXIT
if [ -n "$dropped" ]; then
    while :; do
        dd if="$dropped" iflag=nocache count=0 2>/dev/null
        sleep 0.2
    done &
    dropper=$!
fi
measure() { # SYSTEM PROGRAM...
    system=$1
    shift
    "$@" --json -q | sed -n 's/^ *"\(test\|tps\|drive_gbps\|drive_share\)": "\{0,1\}\([^",]*\).*/\1 \2/p' |
        while read -r key value; do
            case $key in
            test) name=$value ;;
            tps) echo "$name,tokens/s $system $value" ;;
            drive_gbps) [ "$value" = 0 ] || echo "$name,drive,GB/s $system $value" ;;
            drive_share) [ "$value" = 0 ] || echo "$name,drive,share $system $value" ;;
            esac
        done >>"$rows"
}
turn=0
while [ $turn -lt "$turns" ]; do
    turn=$((turn + 1))
    measure linux "$linux" bench "$@"
    measure windows "$(dirname "$0")/wine.sh" "$windows" bench "$@"
done
sort -k 1,2 -k 3,3g "$rows" | awk '
    { n[$1, $2]++; value[$1, $2, n[$1, $2]] = $3; tests[$1] }
    function median(test, os, count) {
        count = n[test, os]
        if (count % 2) return value[test, os, (count + 1) / 2]
        return (value[test, os, count / 2] + value[test, os, count / 2 + 1]) / 2
    }
    END {
        printf "%-24s %10s %10s %6s\n", "test", "linux", "windows", "ratio"
        for (test in tests) {
            l = median(test, "linux"); w = median(test, "windows")
            name = test
            gsub(",", " ", name)
            printf "%-24s %10.2f %10.2f %6.3f\n", name, l, w, l ? w / l : 0
        }
    }'
