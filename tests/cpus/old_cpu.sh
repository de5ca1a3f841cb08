#!/bin/sh
# Runs the program and the kernel tests on emulated x86 processors that lack the newer instruction
# sets, where such an instruction ends a process: only the code of a tier may use the tier's.
#   old_cpu.sh BUILD SOURCE CPU TIER    TIER: the best one that this processor has
# Exit status 77: skipped, there is no emulator.
set -eu
build=$1 source=$2 cpu=$3 tier=$4

if ! command -v qemu-x86_64 >/dev/null 2>&1; then
    echo "*** SKIPPED: qemu-x86_64 is not installed; old processors are not tested ***" >&2
    exit 77
fi

run() { qemu-x86_64 -cpu "$cpu" "$@" 2>"$log"; }
log=$build/old_cpu_$cpu.log
fail() { echo "$cpu: $1" >&2; tail -n 20 "$log" >&2; exit 1; }

features=$(run "$build/powerinfer" inspect --devices) || fail "inspect did not run"
echo "$features"
case "$features" in *avx512*) fail "claims AVX-512" ;; esac
[ "$tier" = avx2 ] || case "$features" in *avx2*) fail "claims AVX2" ;; esac

# Every group of tests that runs kernels on all tiers; AVX-512 is not here, so `auto` is $tier.
tests=$(run "$build/test_kernel") || fail "test_kernel failed"
echo "$tests" | grep "^tier "
echo "$tests" | grep -qx "tier $tier: the best here" || fail "the best tier is not $tier"

text=$(run "$build/powerinfer" run -m "$source/models/novella-7m.q8_0.powerinfer.gguf" \
    -p "The old lighthouse keeper" -n 8 --temp 0) || fail "run failed"
[ -n "$text" ] || fail "run wrote nothing"
echo "$text"
