#!/bin/sh
# Checks that memory stays flat: generates under a memory budget for some minutes and samples the
# resident memory of the process. Fails when the mean of the last tenth is more than 2% above the mean
# of the second tenth, or when a sample is more than 2% above the budget.
#   scripts/check-memory-flat.sh -m MODEL -b GIB [-t MINUTES] [-p OPTIONS]
# MINUTES: default 60. OPTIONS: options of `powerinfer bench`, such as "-t 1 -b 64".
set -eu
program=${POWERINFER:-$(dirname "$0")/../build/powerinfer}
model= budget= minutes=60 options=
while getopts m:b:t:p: option; do
    case $option in
    m) model=$OPTARG ;;
    b) budget=$OPTARG ;;
    t) minutes=$OPTARG ;;
    p) options=$OPTARG ;;
    *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
    esac
done
[ -n "$model" ] && [ -n "$budget" ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }

samples=$(mktemp)
# Generates answers of 512 tokens repeatedly.
# shellcheck disable=SC2086 # options are several words
"$program" bench -m "$model" --ram-budget "$budget" -p 0 -n 512 -r 1000 -q $options \
    >/dev/null 2>"$samples.err" &
child=$!
trap 'kill $child 2>/dev/null || true; rm -f "$samples" "$samples.err"' EXIT

end=$(($(date +%s) + minutes * 60))
while [ "$(date +%s)" -lt $end ]; do
    sleep 1
    awk '/^Rss:/ {print $2}' /proc/$child/smaps_rollup >>"$samples" 2>/dev/null || {
        echo "the program ended: $(tail -n 1 "$samples.err")" >&2
        exit 1
    }
done
awk -v budget="$budget" -v minutes="$minutes" '
    {v[NR] = $1; if ($1 > most) most = $1}
    END {
        tenth = int(NR / 10)
        if (tenth < 1) {print "too few samples: run longer"; exit 1}
        for (i = 1; i <= tenth; i++) {early += v[tenth + i]; late += v[NR - tenth + i]}
        growth = 100 * (late / early - 1)
        over = 100 * (most / 1048576 / budget - 1)
        printf "%d minutes, %d samples: %.1f MiB early, %.1f MiB late (%+.2f%%), at most %.1f MiB (%+.2f%% of the budget)\n",
            minutes, NR, early / tenth / 1024, late / tenth / 1024, growth, most / 1024, over
        exit growth > 2 || over > 2
    }' "$samples"
