#!/bin/sh
# Prints the tables of predicted speeds in docs/placement.md, from `powerinfer place --json`: tokens
# per second of decode. Nothing is measured.
#   scripts/predict-speeds.sh [-c LABEL | -v] [PROGRAM]     PROGRAM: build/powerinfer
# Without -c: sparse (density 0.1) over dense, for desktops. -c: models and cards, in rows named
# "SHAPE, LABEL"; the rows of two programs, with labels such as before and after, make one table.
# -v: GPUs with Vulkan.
set -eu
label="" vulkan=""
while getopts c:v option; do
    case $option in
    c) label=$OPTARG ;;
    v) vulkan=1 ;;
    *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
program=${1:-build/powerinfer}

field() { printf '%s\n' "$1" | sed -n "s/^  \"$2\": \([^,]*\),*$/\1/p"; }

# SHAPE TYPE MACHINE MODE [OPTION]: "12.3", with a star when the CPU's weights exceed host memory
speed() {
    case $3 in iris-xe | steam-deck) host=17179869184 ;; *) host=68719476736 ;; esac # 16, 64 GiB
    # shellcheck disable=SC2086 # no option, or one
    plan=$("$program" place -q --json --shape "$1" --type "$2" --profile "$3" --mode "$4" \
        --density 0.1 --skew 0.26:0.8 --rank 256 -c 2048 -d 512 ${5:-})
    awk -v s="$(field "$plan" seconds_per_token)" -v b="$(field "$plan" cpu_bytes)" -v h="$host" \
        'BEGIN { printf(1 / s < 9.95 ? "%.1f" : "%.0f", 1 / s); if (b > h) printf "\\*" }'
}

header() { # FIRST-COLUMN [full]: without `full`, names lack what stands before the first hyphen
    printf '| %s |' "$1"
    for machine in $machines; do
        if [ "${2:-}" = full ]; then
            printf ' %s |' "$machine"
        else
            printf ' %s |' "$(printf '%s' "${machine#*-}" | sed 's/-/, /; s/^server/H200/')"
        fi
    done
    printf '\n|---|'
    for machine in $machines; do printf -- '---|'; done
    printf '\n'
}

# Rows of Q4_0: sparse over dense where the model has sparse neurons.
cards() { # LABEL SHAPE...: "SHAPE, LABEL"
    end=${1:+, $1}
    shift
    for shape; do
        printf '| %s |' "$shape$end"
        for machine in $machines; do
            case $shape in # experts have no sparse neurons
            qwen3*) printf ' %s |' "$(speed "$shape" q4_0 "$machine" dense)" ;;
            *) printf ' %s / %s |' "$(speed "$shape" q4_0 "$machine" predict)" \
                "$(speed "$shape" q4_0 "$machine" dense --plain)" ;;
            esac
        done
        printf '\n'
    done
}

if [ -n "$label" ]; then
    machines="rtx-3060-ddr5 rtx-4090-ddr5 rtx-5090-ddr5 rx-7900xtx-ddr5 h200-server"
    header "Q4_0"
    cards "$label" llama-7b llama-13b falcon-40b llama-70b qwen3-30b-a3b
    exit
fi

if [ -n "$vulkan" ]; then
    machines="arc-b580-ddr5 rx-6800-ddr4 gtx-1080-ddr4 iris-xe steam-deck"
    header "Q4_0" full
    cards "" llama-7b llama-13b falcon-40b qwen3-30b-a3b
    exit
fi

machines="rtx-2080ti-ddr4 rtx-2080ti-ddr5 rtx-3060-ddr4 rtx-3060-ddr5
          rtx-4090-ddr4 rtx-4090-ddr5 rtx-5090-ddr4 rtx-5090-ddr5"
header "shape, weights"
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
