#!/bin/sh
# Measures tokens per second against memory, with the mapped file and with a memory budget. Every run
# is in a memory control group of that size (root only; version 1 or 2).
#   scripts/measure-memory.sh [-o PICTURE.svg] [-k ROWS] [-n TOKENS] [-m TOKENS] [-s "SHARES"]
#                             [-d "MB READS"] [FILE...]
# Prints a table; PICTURE shows it. Floor: the reads of a token at the rate that the drive has for
# reads of their size. SHARES: sizes of the group as percentages of the file size (default
# "30 50 80 120"). -n: tokens per test (default: 32); -m: tokens per test of the mapped file, which
# may take seconds per token (default: as for -n). ROWS: a file to which the measurements are
# appended; PICTURE shows all its rows.
# -d: the group reads at most so many MB and so many times per second, like a slower drive; the files
# must then be on a whole disk, not a partition.
set -eu
program=${POWERINFER:-$(dirname "$0")/../build/powerinfer}
picture= kept= tokens=32 mapped_tokens= shares="30 50 80 120" limits=
margin=64 # MiB of the group beyond the budget: page tables
while getopts o:k:n:m:s:d: option; do
    case $option in
    o) picture=$OPTARG ;;
    k) kept=$OPTARG ;;
    n) tokens=$OPTARG ;;
    m) mapped_tokens=$OPTARG ;;
    s) shares=$OPTARG ;;
    d) limits=$OPTARG ;;
    *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || [ -n "$kept" ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=/sys/fs/cgroup/powerinfer-measure limit=memory.max peak=memory.peak
else
    group=/sys/fs/cgroup/memory/powerinfer-measure limit=memory.limit_in_bytes
    peak=memory.max_usage_in_bytes
fi
mkdir -p "$group"
io=$group # the group that limits reads
[ -e /sys/fs/cgroup/cgroup.controllers ] || io=/sys/fs/cgroup/blkio/powerinfer-measure
[ -z "$limits" ] || mkdir -p "$io"
rows=${kept:-$(mktemp)}
trap '[ -n "$kept" ] || rm -f "$rows"; rmdir "$group" "$io" 2>/dev/null || true' EXIT

limit_reads() { # FILE MB READS
    disk=$(stat -L -c %Hd:%Ld "$1")
    if [ "$io" = "$group" ]; then
        echo +io >/sys/fs/cgroup/cgroup.subtree_control
        echo "$disk rbps=$(($2 * 1000000)) riops=$3" >"$io/io.max"
    else
        echo "$disk $(($2 * 1000000))" >"$io/blkio.throttle.read_bps_device"
        echo "$disk $3" >"$io/blkio.throttle.read_iops_device"
    fi
}

# Prints tokens/s of a run in a group of so many MiB, or "-" when the run was killed.
run_in_group() { # MiB, options of bench...
    echo $(($1 * 1048576)) >"$group/$limit"
    echo 0 >"$group/$peak" 2>/dev/null || true
    shift
    sync
    echo 3 >/proc/sys/vm/drop_caches
    sh -c 'echo $$ >"$0/cgroup.procs"; [ ! -d "$1" ] || echo $$ >"$1/cgroup.procs"; shift; exec "$@"' \
        "$group" "$io" "$program" bench -p 0 -r 2 --json -q "$@" 2>/dev/null |
        awk -F'[:,]' '/"tps"/ {t = $2} /"drive_share"/ {s = $2} /"cache_hits"/ {h = $2}
            /"drive_bytes"/ {b = $2} /"drive_reads"/ {r = $2} /"drive_gbps"/ {g = $2}
            END {if (t == "") print "- - - - - -"
                 else printf "%.2f %.0f%% %.1f%% %.2f %.0f %.2f\n", t, 100 * s, 100 * h, b / 1e6, r, g}'
}

echo "| file | GiB | group, GiB | share | mapped, tokens/s | budget, tokens/s | reads/token | MB/token | drive, GB/s | floor, tokens/s | drive share | cache hits |"
echo "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
for file; do
    bytes=$(stat -L -c %s "$file")
    # shellcheck disable=SC2086 # two numbers
    [ -z "$limits" ] || limit_reads "$file" $limits
    for share in $shares; do
        mib=$((bytes / 1048576 * share / 100))
        mapped=$(run_in_group "$mib" -m "$file" -n "${mapped_tokens:-$tokens}" --ram-budget 0)
        budget=$(awk "BEGIN {printf \"%.4f\", ($mib - $margin) / 1024}")
        ours=$(run_in_group "$mib" -m "$file" -n "$tokens" --ram-budget "$budget")
        echo "$(basename "$file" .gguf) $bytes $mib $share $mapped $ours" >>"$rows"
        tail -n 1 "$rows" | awk '{printf "| %s | %.2f | %.2f | %d%% | %s | %s | %s | %s | %s | %s | %s | %s |\n",
            $1, $2 / 2 ^ 30, $3 / 1024, $4, $5, $11, $15, $14, $16, ($14 > 0 ? 1e3 * $16 / $14 : ""), $12, $13}'
    done
done
[ -n "$picture" ] || exit 0

# One panel per file: x axis: memory as a share of the file size; y axis: tokens/s from 0.
awk '
    function px(share) { return left + (share - low) / (high - low) * (w - 80) }
    function py(v) { return 190 - v / most[f] * 150 }
    function line(kind, color,   i, d) {
        for (i = 1; i <= n[f]; i++) if (v[f, i, kind] != "-")
            d = d (d == "" ? "M" : "L") px(x[f, i]) " " py(v[f, i, kind])
        printf "<path d=\"%s\" stroke=\"%s\" stroke-width=\"2\" fill=\"none\"/>\n", d, color
    }
    {
        if (!($1 in n)) name[++files] = $1
        i = ++n[$1]; x[$1, i] = $4; v[$1, i, 1] = $5; v[$1, i, 2] = $11
        for (k = 5; k <= 11; k += 6) if ($k != "-" && $k + 0 > most[$1]) most[$1] = $k + 0
        if (low == "" || $4 < low) low = $4
        if ($4 > high) high = $4
    }
    END {
        w = 280
        if (high == low) high = low + 1
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d 240\" font-family=\"sans-serif\" font-size=\"12\">\n", w * files
        printf "<rect width=\"%d\" height=\"240\" fill=\"#fff\"/>\n", w * files
        for (k = 1; k <= files; k++) {
            f = name[k]; left = (k - 1) * w + 50
            if (!most[f]) most[f] = 1
            printf "<text x=\"%d\" y=\"20\" font-weight=\"600\">%s</text>\n", left, f
            printf "<path d=\"M%d 40V190H%d\" stroke=\"#777\" fill=\"none\"/>\n", left, left + w - 80
            printf "<text x=\"%d\" y=\"45\" text-anchor=\"end\">%.1f</text><text x=\"%d\" y=\"194\" text-anchor=\"end\">0</text>\n", left - 4, most[f], left - 4
            for (i = 1; i <= n[f]; i++)
                printf "<text x=\"%d\" y=\"206\" text-anchor=\"middle\">%d%%</text>\n", px(x[f, i]), x[f, i]
            line(1, "#b35c2a"); line(2, "#2a6db3")
        }
        printf "<text x=\"50\" y=\"230\"><tspan fill=\"#2a6db3\">memory budget</tspan> and <tspan fill=\"#b35c2a\">mapped file</tspan>, tokens/s against memory as a share of the file</text>\n</svg>\n"
    }' "$rows" >"$picture"
