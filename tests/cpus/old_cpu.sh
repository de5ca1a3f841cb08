#!/bin/sh
# Runs a part of the program and its tests on an emulated x86 CPU that lacks the newer instruction
# sets. There a newer instruction ends the process: only a tier's own code may use the instructions
# of the tier.
#   old_cpu.sh BUILD SOURCE CPU TIER PART
#     TIER   the best tier of this CPU
#     PART   program, or a test that runs all tiers: sample_kernel, test_ops, test_attention
# Exit status 77: skipped, there is no emulator.
set -eu
build=$1 source=$2 cpu=$3 tier=$4 part=$5

if ! command -v qemu-x86_64 >/dev/null 2>&1; then
    echo "*** SKIPPED: qemu-x86_64 is not installed; old CPUs are not tested ***" >&2
    exit 77
fi

log=$build/old_cpu_${cpu}_$part.log # standard error of the last step
run() { qemu-x86_64 -cpu "$cpu" "$@" 2>"$log"; }
fail() { echo "$cpu: $1" >&2; tail -n 20 "$log" >&2; exit 1; }

if [ "$part" != program ]; then
    tests=$(run "$build/$part") || { echo "$tests"; fail "$part failed"; }
    grep '^\[  PASSED  \]' "$log" || fail "$part prints no result"
    [ "$part" = sample_kernel ] || exit 0
    echo "$tests" | grep "^tier " # without AVX-512 `auto` is TIER
    echo "$tests" | grep -qx "tier $tier: the best here" ||
        fail "the best tier is not $tier"
    exit 0
fi

program=$build/powerinfer
bundled=$source/models/novella-7m.q8_0.powerinfer.gguf
work=$build/old_cpu_$cpu
trap 'rm -f "$work".*' EXIT

features=$(run "$program" inspect --devices) || fail "inspect did not run"
echo "$features" | grep '^cpu: '
case "$features" in *avx512*) fail "claims AVX-512" ;; esac
[ "$tier" = avx2 ] || case "$features" in *avx2*) fail "claims AVX2" ;; esac

# The tokens must equal those of this machine's own CPU with the scalar kernels, which keep
# activations in float; greedy sampling hides rounding.
generate() { # MODEL MODE
    how=$2
    set -- run -m "$1" --mode "$how" -p "The old lighthouse keeper" -n 8 --temp 0
    text=$(run "$program" "$@") || fail "run --mode $how failed"
    grep -q "^CPU: .*kernels" "$log" || fail "run does not name its kernels"
    want=$("$program" "$@" --kernels scalar 2>/dev/null) || fail "the reference run failed"
    [ "$text" = "$want" ] || fail "--mode $how: wrote '$text' instead of '$want'"
    [ -n "$text" ] || fail "run --mode $how wrote nothing"
    echo "$how:$text"
}
generate "$bundled" auto
grep "^CPU: " "$log"

# Converts back to an ordinary file, which is prepared with a trained predictor.
run "$program" prepare --undo "$bundled" -o "$work.plain.gguf" -q || fail "prepare --undo failed"
generate "$work.plain.gguf" dense
run "$program" prepare "$work.plain.gguf" -o "$work.gguf" -q --predictor lowrank \
    --calibration "$source/models/calibration.txt" --calibration-tokens 128 \
    --calibration-window 32 || fail "prepare failed"
for mode in predict exact; do generate "$work.gguf" $mode; done

# Weights of another type, floors, and logits, on a small synthetic model.
run "$program" synth -o "$work.gguf" --shape tiny --type q4_0 -q || fail "synth failed"
echo "1 2 3 5 8 13 21 34 55 89 144" >"$work.ids"
for mode in dense predict; do
    run "$program" eval -m "$work.gguf" --tokens "$work.ids" --logits-out "$work.$mode" \
        --batch 1 --mode $mode || fail "eval --mode $mode failed"
    [ -s "$work.$mode" ] || fail "eval --mode $mode wrote nothing"
done
! cmp -s "$work.dense" "$work.predict" || fail "the predictor changes nothing"
run "$program" bench -m "$work.gguf" -p 16 -n 8 -r 1 --mode predict --json >"$work.json" ||
    fail "bench failed"
grep -q '"mode": "predict"' "$work.json" || fail "bench did not use the predictor"
