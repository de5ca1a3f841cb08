#!/bin/sh
# Prepares a model with each predictor recipe and writes a Markdown table: recall and selected
# fraction of the predictor, bytes read, loss on a text that nothing was fitted to, and speed.
#   scripts/compare-predictors.sh MODEL.gguf TEXT [RECALL...]      (0.95 0.98 0.99)
# POWERINFER  the program (build/powerinfer)
# RECIPES     the recipes
# WINDOWS     number of scored windows of 256 tokens of TEXT (0: all)
# TIMED=N     adds a column of speeds: medians of N rounds. In a round every model generates 256
#             tokens once, so that other load of the machine affects all models equally.
# KEEP=FOLDER keeps the files in FOLDER instead of a temporary folder. A later call reuses them and
#             adds its rounds, so that speeds can be measured when the machine is idle.
set -eu

model=$1
text=$2
shift 2
[ $# -gt 0 ] || set -- 0.95 0.98 0.99
program=${POWERINFER:-build/powerinfer}
recipes=${RECIPES:-sign lowrank relu_mlp}
windows=${WINDOWS:-0}
rounds=${TIMED:-0}
if [ -n "${KEEP:-}" ]; then
    folder=$KEEP
    mkdir -p "$folder"
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    trap 'exit 1' INT TERM
fi

# Mean of all numbers with a given name in a JSON document on standard input.
mean() {
    grep -o "\"$1\": *[-0-9.e+]*" | sed 's/.*: *//' |
        awk '{ s += $1; n++ } END { if (n) printf "%.10g", s / n; else printf "0" }'
}
# Median of the numbers on standard input; for an even count, the lower of the two in the middle.
median() {
    sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)]; else print 0 }'
}

# once FILE COMMAND...: writes the output of the command to FILE unless FILE exists
once() {
    once_file=$1
    shift
    [ -f "$once_file" ] && return
    "$@" >"$once_file.part"
    mv "$once_file.part" "$once_file"
}
prepare() { # RECIPE TARGET OUT -> JSON
    "$program" prepare -q "$model" -o "$3" --predictor "$1" --recall "$2" --json
}
perplexity() { # MODEL MODE
    "$program" perplexity -q -m "$1" -f "$text" -c 256 --first "$windows" --mode "$2" --json |
        mean perplexity
}
generate() { # MODEL MODE TOKENS -> the report of a run
    "$program" run -m "$1" -p "It was" -n "$3" --temp 0 --ignore-eos --mode "$2" 2>&1 >/dev/null
}
read_mb() { # MODEL MODE -> MB read per token while 64 tokens are generated
    generate "$1" "$2" 64 | sed -n 's/.* \([0-9.]*\) MB read per token.*/\1/p'
}
speed() { # MODEL MODE -> tokens per second
    generate "$1" "$2" 256 | sed -n 's/^generation: .* \([0-9.]*\) tokens\/s.*/\1/p'
}

# Every line: name, model, mode, recipe, target.
list() {
    echo "dense $model dense - -"
    echo "exact $folder/exact.gguf exact none 0.98"
    for recipe in $recipes; do
        for target in "$@"; do
            echo "$recipe-$target $folder/$recipe-$target.gguf predict $recipe $target"
        done
    done
}
list "$@" >"$folder/list"

while read -r name file mode recipe target; do
    [ "$name" = dense ] || once "$folder/$name.json" prepare "$recipe" "$target" "$file" </dev/null
    once "$folder/$name.mb" read_mb "$file" "$mode" </dev/null
    once "$folder/$name.ppl" perplexity "$file" "$mode" </dev/null
    touch "$folder/$name.tps"
done <"$folder/list"
for round in $(seq "$rounds"); do
    while read -r name file mode recipe target; do
        speed "$file" "$mode" </dev/null >>"$folder/$name.tps"
    done <"$folder/list"
done

dense_ppl=$(cat "$folder/dense.ppl")
dense_tps=$(median <"$folder/dense.tps")
[ "$rounds" -eq 0 ] && timed= || timed=yes
echo "| predictor | target | rank | recall | contribution recall | selected | MB per token | perplexity |${timed:+ tokens/s |}"
echo "|---|---|---|---|---|---|---|---|${timed:+---|}"
while read -r name file mode recipe target; do
    json=$folder/$name.json
    case $name in
    dense) printf '| dense | - | - | - | - | 100%% |' ;;
    exact) printf '| exact | - | 0 | 100%% | 100%% | 100%% |' ;;
    *) awk -v recipe="$recipe" -v target="$target" -v rank="$(mean rank <"$json")" \
        -v recall="$(mean recall <"$json")" -v caught="$(mean contribution_recall <"$json")" \
        -v chosen="$(mean selected <"$json")" 'BEGIN {
        printf "| %s | %s | %.0f | %.1f%% | %.1f%% | %.1f%% |",
            recipe, target, rank, 100 * recall, 100 * caught, 100 * chosen
    }' ;;
    esac
    awk -v mb="$(cat "$folder/$name.mb")" -v ppl="$(cat "$folder/$name.ppl")" -v base="$dense_ppl" \
        -v rounds="$rounds" -v tps="$(median <"$folder/$name.tps")" -v dense="$dense_tps" 'BEGIN {
        printf " %.2f | %.3f (%+.2f%%) |", mb, ppl, 100 * (ppl / base - 1)
        if (rounds > 0) printf " %.0f (%.2f) |", tps, tps / dense
        printf "\n"
    }'
done <"$folder/list"
