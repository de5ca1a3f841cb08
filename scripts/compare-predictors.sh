#!/bin/sh
# Prepares a model with each predictor recipe and writes a Markdown table: what the predictor
# catches, what it costs to read, and what it loses on a text that nothing was fitted to.
#   scripts/compare-predictors.sh MODEL.gguf TEXT [RECALL...]      (0.95 0.98 0.99)
# POWERINFER names the program (build/powerinfer), RECIPES the recipes, WINDOWS how many windows of
# 256 tokens of TEXT are scored (0: all); with TIMED=1 there is a column of speeds over the dense
# model's. Intermediate files go to a folder that is removed.
set -eu

model=$1
text=$2
shift 2
[ $# -gt 0 ] || set -- 0.95 0.98 0.99
program=${POWERINFER:-build/powerinfer}
recipes=${RECIPES:-sign lowrank relu_mlp}
windows=${WINDOWS:-0}
timed=${TIMED:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM

# Mean of all numbers that go by a name in a JSON document on standard input.
mean() {
    grep -o "\"$1\": *[-0-9.e+]*" | sed 's/.*: *//' |
        awk '{ s += $1; n++ } END { if (n) printf "%.10g", s / n; else printf "0" }'
}
perplexity() { # MODEL MODE
    "$program" perplexity -q -m "$1" -f "$text" -c 256 --first "$windows" --mode "$2" --json |
        mean perplexity
}
read_mb() { # MODEL MODE -> MB read per token while 64 tokens are generated
    "$program" run -m "$1" -p "It was" -n 64 --temp 0 --ignore-eos --mode "$2" 2>&1 >/dev/null |
        sed -n 's/.* \([0-9.]*\) MB read per token.*/\1/p'
}
speed() { # MODEL MODE -> tokens per second, or 0 when nobody asked
    [ -n "$timed" ] || { echo 0; return; }
    "$program" bench -q -m "$1" -p 0 -n 64 -r 3 --mode "$2" --json | mean tps
}

row() { # NAME TARGET JSON MODEL MODE
    set -- "$@" "$(read_mb "$4" "$5")" "$(speed "$4" "$5")" "$(perplexity "$4" "$5")"
    awk -v name="$1" -v target="$2" -v mb="$6" -v tps="$7" -v ppl="$8" -v base="$dense_ppl" \
        -v base_tps="$dense_tps" -v rank="$(mean rank <"$3")" -v recall="$(mean recall <"$3")" \
        -v caught="$(mean contribution_recall <"$3")" -v chosen="$(mean selected <"$3")" 'BEGIN {
        printf "| %s | %s | %.0f | %.1f%% | %.1f%% | %.1f%% | %.2f | %.3f (%+.2f%%) |",
            name, target, rank, 100 * recall, 100 * caught, 100 * chosen, mb, ppl,
            100 * (ppl / base - 1)
        if (base_tps > 0) printf " %.2f |", tps / base_tps
        printf "\n"
    }'
}

dense_ppl=$(perplexity "$model" dense)
dense_tps=$(speed "$model" dense)
echo "| recipe | target | rank | recall | contribution recall | computed | MB per token | perplexity |${timed:+ speed |}"
echo "|---|---|---|---|---|---|---|---|${timed:+---|}"
printf '| dense | - | - | - | - | 100%% | %.2f | %.3f |%s\n' "$(read_mb "$model" dense)" "$dense_ppl" \
    "${timed:+ 1 |}"
"$program" prepare -q "$model" -o "$folder/p.gguf" --predictor none --json >"$folder/json"
row exact - "$folder/json" "$folder/p.gguf" exact
for recipe in $recipes; do
    for target in "$@"; do
        "$program" prepare -q "$model" -o "$folder/p.gguf" --predictor "$recipe" \
            --recall "$target" --json >"$folder/json"
        row "$recipe" "$target" "$folder/json" "$folder/p.gguf" predict
    done
done
