#!/bin/sh
# Measures this machine's row of the tables in docs/performance.md: prefill, decode, small steps and
# sparse decode, in turn with llama.cpp where its programs are given.
#   scripts/compare.sh [-b LLAMA_BENCH] [-q LLAMA_QUANTIZE] [-r ROUNDS] [-t THREADS] [-d FOLDER] [TEST...]
# Prints a Markdown table: the median of ROUNDS (3) rounds, in each of which both programs run once.
# FOLDER keeps the models (9 GiB; default: a temporary folder, removed at the end). TEST: names of
# the first column, as patterns of the shell; default: all.
set -eu
program=${POWERINFER:-$(dirname "$0")/../build/powerinfer}
bench='' quantize='' rounds=3 folder=''
threads=$(lscpu -p=core,socket 2>/dev/null | grep -v '^#' | sort -u | wc -l)
while getopts b:q:r:t:d: option; do
    case $option in
    b) bench=$OPTARG ;;
    q) quantize=$OPTARG ;;
    r) rounds=$OPTARG ;;
    t) threads=$OPTARG ;;
    d) folder=$OPTARG ;;
    *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- '*'
work=$(mktemp -d)
[ -x "$program" ] || { echo "$program: no such program; build it or set POWERINFER" >&2; exit 1; }
trap 'rm -rf "$work"' EXIT
folder=${folder:-$work}
mkdir -p "$folder"

wanted() { # NAME...: whether one of these tests is to run
    for name; do
        for pattern in $tests; do
            # shellcheck disable=SC2254 # a pattern
            case $name in $pattern) return 0 ;; esac
        done
    done
    return 1
}

model() { # NAME, options of synth: prints the file's path, makes it where it is missing
    file=$folder/$1.gguf
    shift
    [ -e "$file" ] || "$program" synth -q -o "$file" "$@"
    echo "$file"
}

number() { # KEY: the first number of this key in JSON on standard input; - if there is none
    sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" | head -n 1 | grep . || echo -
}

median() { # numbers, one per line
    grep -v '^-$' | sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)]; else print "-" }'
}

seconds() { # COMMAND...: wall time
    start=$(date +%s.%N)
    "$@" >/dev/null 2>&1
    echo "$(date +%s.%N) $start" | awk '{ print $1 - $2 }'
}

empty() { for f in ours theirs share; do : >"$work/$f"; done; } # one number per round each

row() { # NAME SHARE OURS THEIRS: prints a line; OURS, THEIRS: files with one number per round
    ours=$(median <"$3") theirs=$(median <"$4") share=$(median <"$2")
    ratio=$(paste "$3" "$4" | awk '$1 != "-" && $2 != "-" && $2 > 0 { print $1 / $2 }' | median)
    echo "$1 $ours $theirs $ratio $share" |
        awk '{ f = "%s"; for (i = NF - 3; i <= NF; i++) if ($i == "-") $i = "–"; else $i = sprintf(i < NF - 1 ? "%.4g" : "%.2f", $i)
               n = $1; for (i = 2; i < NF - 3; i++) n = n " " $i
               print "| " n " | " $(NF-3) " | " $(NF-2) " | " $(NF-1) " | " $NF " |" }'
}

compare() { # NAME FILE N_PROMPT N_GEN DEPTH: tokens/s of both programs
    wanted "$1" || return 0
    empty
    for round in $(seq "$rounds"); do
        "$program" bench -m "$2" -t "$threads" -p "$3" -n "$4" -d "$5" -r 1 --mode dense --json 2>/dev/null >"$work/json"
        sed -n '/"results"/,$p' "$work/json" >"$work/results"
        number tps <"$work/results" >>"$work/ours"
        if [ "$4" -gt 0 ]; then number bandwidth_share <"$work/results" >>"$work/share"; fi
        if [ -n "$bench" ]; then
            "$bench" -m "$2" -t "$threads" -p "$3" -n "$4" -d "$5" -r 1 -o json 2>/dev/null | number avg_ts >>"$work/theirs"
        else
            echo - >>"$work/theirs"
        fi
    done
    row "$1" "$work/share" "$work/ours" "$work/theirs"
}

modes() { # NAME FILE: decode in mode predict over mode dense; the second column is dense
    wanted "$1" || return 0
    empty
    for round in $(seq "$rounds"); do
        for mode in predict:ours dense:theirs; do
            "$program" bench -m "$2" -t "$threads" -p 0 -n 64 -r 1 --mode "${mode%:*}" --json 2>/dev/null >"$work/json"
            sed -n '/"results"/,$p' "$work/json" >"$work/results"
            number tps <"$work/results" >>"$work/${mode#*:}"
            [ "$mode" = dense:theirs ] || number floor_share <"$work/results" >>"$work/share"
        done
    done
    row "$1" "$work/share" "$work/ours" "$work/theirs"
}

steps() { # NAME FILE: tokens/s of steps of several tokens over steps of one
    for n in 2 4 8 16 32; do : >"$work/step$n"; done
    for round in $(seq "$rounds"); do
        "$program" bench -m "$2" -t "$threads" -p 2,4,8,16,32 -n 32 -r 5 --mode dense -o jsonl 2>/dev/null >"$work/json"
        one=$(grep '"tg32"' "$work/json" | number tps)
        for n in 2 4 8 16 32; do
            grep "\"pp$n\"" "$work/json" | number tps | awk -v one="$one" '{ print $1 / one }' >>"$work/step$n"
        done
    done
    printf '\n%s: steps of 2, 4, 8, 16, 32 tokens over one token:' "$1"
    for n in 2 4 8 16 32; do printf ' %.2f' "$(median <"$work/step$n")"; done
    echo
}

quantized() { # NAME FILE TYPE: seconds
    wanted "$1" || return 0
    empty
    for round in $(seq "$rounds"); do
        seconds "$program" quantize "$2" "$work/q.gguf" "$3" -t "$threads" >>"$work/ours"
        if [ -n "$quantize" ]; then
            seconds "$quantize" "$2" "$work/q.gguf" "$3" "$threads" >>"$work/theirs"
        else
            echo - >>"$work/theirs"
        fi
        rm -f "$work/q.gguf"
    done
    row "$1, s" "$work/share" "$work/ours" "$work/theirs"
}

tests=$*
set -f # patterns of tests are not names of files
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1), $threads threads, $(date +%F)"
echo
echo '| test | powerinfer | llama.cpp | ratio | bandwidth |'
echo '|---|---|---|---|---|'
for type in q4_0 q4_k; do
    wanted "7b-$type-prompt" "7b-$type-decode" "7b-$type-decode-2048" steps || continue
    f=$(model "7b-$type" --shape llama-7b --type $type --layers 8 --plain)
    compare "7b-$type-prompt" "$f" 512 0 0
    compare "7b-$type-decode" "$f" 0 64 0
    compare "7b-$type-decode-2048" "$f" 0 64 2048
done
if wanted 1b-f16-prompt 1b-f16-decode; then
    f=$(model 1b-f16 --shape llama-1b --type f16 --plain)
    compare 1b-f16-prompt "$f" 512 0 0
    compare 1b-f16-decode "$f" 0 64 0
fi
if wanted experts-prompt experts-decode; then
    f=$(model experts --shape qwen3-30b-a3b --type q4_0 --layers 4 --plain)
    compare experts-prompt "$f" 512 0 0
    compare experts-decode "$f" 0 64 0
fi
if wanted quantize; then
    quantized quantize "$(model 7b-f16 --shape llama-7b --type f16 --layers 4 --plain)" Q4_K_M
fi
# The columns of these rows: mode predict, mode dense, their ratio, the share of the floor.
for shape in bamboo-7b llama-7b; do
    wanted "sparse-$shape" || continue
    modes "sparse-$shape" "$(model "sparse-$shape" --shape $shape --type q4_0 --layers 12 --density 0.1)"
done
if wanted steps; then
    for type in q4_0 q4_k; do
        steps "7b-$type" "$folder/7b-$type.gguf"
    done
fi
