#!/bin/sh
# Prints the table of predicted speeds in docs/placement.md, from `powerinfer place --json`: tokens
# per second, sparse (density 0.1) over dense. Nothing is measured.
#   scripts/predict-speeds.sh [PROGRAM]     PROGRAM: build/powerinfer
set -eu
program=${1:-build/powerinfer}
machines="rtx-2080ti-ddr4 rtx-2080ti-ddr5 rtx-3060-ddr4 rtx-3060-ddr5
          rtx-4090-ddr4 rtx-4090-ddr5 rtx-5090-ddr4 rtx-5090-ddr5"
host=68719476736 # bytes of host memory: 64 GiB

field() { printf '%s\n' "$1" | sed -n "s/^  \"$2\": \([^,]*\),*$/\1/p"; }

# SHAPE TYPE MACHINE MODE: "12.3", with a star when the CPU's weights exceed host memory
speed() {
    plan=$("$program" place -q --json --shape "$1" --type "$2" --profile "$3" --mode "$4" \
        --density 0.1 --skew 0.26:0.8 --rank 256 -c 2048 -d 512)
    awk -v s="$(field "$plan" seconds_per_token)" -v b="$(field "$plan" cpu_bytes)" -v h="$host" \
        'BEGIN { printf(1 / s < 9.95 ? "%.1f" : "%.0f", 1 / s); if (b > h) printf "\\*" }'
}

printf '| shape, weights |'
for machine in $machines; do printf ' %s |' "$(printf '%s' "${machine#rtx-}" | sed 's/-/, /')"; done
printf '\n|---|'
for machine in $machines; do printf -- '---|'; done
printf '\n'
for shape in bamboo-7b opt-30b falcon-40b; do
    for type in q4_0 f16; do
        printf '| %s, %s |' "$shape" "$(printf '%s' "$type" | tr a-z A-Z)"
        for machine in $machines; do
            printf ' %s / %s |' "$(speed $shape $type "$machine" predict)" \
                "$(speed $shape $type "$machine" dense)"
        done
        printf '\n'
    done
done
