#!/bin/sh
# Compares the speed of the Windows build, under wine, with that of the Linux build on this machine. The
# two run in turn; nothing else should run. Prints the median of each test and the ratio.
#   scripts/compare-windows.sh LINUX WINDOWS TURNS OPTIONS...
# LINUX, WINDOWS: the programs; OPTIONS: of `powerinfer bench`, such as -m FILE. With --ram-budget the
# rate of the drive is compared as well.
set -eu
if [ $# -lt 5 ]; then
    sed -n 's/^#   //p' "$0" >&2
    exit 2
fi
linux=$1 windows=$2 turns=$3
shift 3
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
measure() { # SYSTEM PROGRAM...
    system=$1
    shift
    "$@" --json -q | sed -n 's/^ *"\(test\|tps\|drive_gbps\)": "\{0,1\}\([^",]*\).*/\1 \2/p' |
        while read -r key value; do
            case $key in
            test) name=$value ;;
            tps) echo "$name,tokens/s $system $value" ;;
            drive_gbps) [ "$value" = 0 ] || echo "$name,drive,GB/s $system $value" ;;
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
