#!/bin/bash
# Compiles the kernels for AMD with a current clang, as the build does (src/gpu/driver), for every
# family that they support, and reports errors of the language, unknown names and instructions that a
# family lacks. Then it makes
# machine code of all kernels, for one family of each kind: no kernel may spill registers to memory,
# matrix kernels must use matrix instructions where the family has them, a block must release the
# stores of its waves, and loads of rows must overlap. It needs no GPU and takes a quarter of an hour
# on two cores.
#   check-hip.sh [--quick] [family...]    --quick: no machine code; with families: machine code of all
#   check-hip.sh --brief                  a minute: all sources for one family, for the others only the
#                                         files in which families differ; machine code of loads only
# Needs nothing but clang-19.
set -u
cd "$(dirname "$0")/.." || exit 1
export CLANG=${CLANG:-clang-19}
if ! command -v "$CLANG" >/dev/null; then
    echo "no $CLANG: install it, or name one in CLANG" >&2
    [ "${1:-}" = --brief ] && exit 77 # a skipped test
    exit 1
fi
code="gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1100 gfx1201"
brief=
if [ "${1:-}" = --quick ]; then code="" && shift; fi
if [ "${1:-}" = --brief ]; then code="" && brief=gfx1100 && shift; fi
[ $# -gt 0 ] && [ -n "$code" ] && code=$*
archs=${*:-gfx906 gfx908 gfx90a gfx942 gfx1010 gfx1030 gfx1031 gfx1032 gfx1100 gfx1101 gfx1102 gfx1151 gfx1200 gfx1201}
work=$(mktemp -d) || exit 1
export work
trap 'rm -r "$work"' EXIT

compile() { # arch file options...
    "$CLANG" -x hip -std=c++17 --cuda-device-only --offload-arch="$1" --rocm-path=/nowhere -nogpuinc \
        -nogpulib -mcode-object-version=4 -fno-math-errno -DGPU_CLANG -DGPU_HIP -Wall -Isrc/gpu \
        -Isrc/gpu/cuda -Isrc/gpu/hip -Isrc/gpu/driver -Isrc/base -Isrc/base/os -Isrc/quant -Iinclude \
        "${@:3}" "$2"
}

cat >"$work/order.cu" <<'END'
#include "gpu_kernel.h"
__global__ void __launch_bounds__(256) order_kernel(float *x, int32_t *arrived) {
    GPU_SHARED(bool, last);
    x[blockIdx.x * 256 + threadIdx.x] = threadIdx.x;
    if (gpu_is_last(arrived, 8, &last)) x[threadIdx.x] += x[threadIdx.x + 256];
}
END
cat >"$work/send.cu" <<'END'
#include "gpu_block.h"
__global__ void __launch_bounds__(256) send_kernel(gpu_send a, const float *x) {
    GPU_SHARED(bool, last);
    const uint64_t epoch = *a.epoch;
    a.host_x[blockIdx.x * 256 + threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
    gpu_send_end(a, epoch, 1, &last);
}
END

# Checks that every wave waits for its stores before the barrier after which one thread releases them
# to other blocks (order: gpu_is_last) or to the host (send: gpu_send_end): on gfx90a and gfx94x a
# barrier alone does not wait. For the host these and gfx12 must also write back their caches; on
# other families a barrier's wait is enough.
check_order() { # arch name
    local before write=.
    case $2:$1 in
    send:gfx90a | send:gfx94*) write=buffer_wbl2 ;;
    send:gfx12*) write='global_wb scope:SCOPE_SYS' ;;
    esac
    if compile "$1" "$work/$2.cu" -O3 -S -o "$work/$1.$2.s" \
        -Wno-unused-function &&
        before=$(sed -n '/\(global\|flat\)_store/,/s_barrier/p; /s_barrier/q' "$work/$1.$2.s") &&
        grep -qE 'vmcnt\(0\)|vscnt null, 0x0|storecnt 0x0' <<<"$before" &&
        grep -q "$write" <<<"$before"; then
        echo "$1: a block's stores are released: $2: OK"
    else
        echo "$1: STORES ARE NOT RELEASED: $2"
    fi
}

# Checks that kernels which read rows of selected neurons have several loads in flight: with a wait
# behind each load they reach a fraction of the memory's bandwidth (gpu_pin). Kernels for eight
# tokens load one unit at a time, so a quarter of all may have fewer than four.
check_loads() { # arch
    compile "$1" src/gpu/cuda/op_down.cu -O3 -DNDEBUG -S -o "$work/$1.loads.s" -Wno-pass-failed &&
        awk -v arch="$1" '
            function finish() { if (most > 0) { n++; if (most >= 4) good++ }; most = now = 0 }
            /^[A-Za-z_][A-Za-z0-9_$.]*:/ { finish() }
            /^\t(global|flat|buffer)_load_/ { if (++now > most) most = now }
            /vmcnt|s_wait_loadcnt/ { now = 0 }
            END {
                finish()
                print arch ": " good + 0 " of " n " kernels have four loads in flight" \
                    (n > 0 && 4 * good >= 3 * n ? ": OK" : ": TOO FEW")
            }' "$work/$1.loads.s" || echo "$1: NO CODE"
    rm -f "$work/$1.loads.s"
}

# Prints a line on a file's machine code: OK, or the problem.
check_code() { # arch file
    local name code wanted=0 found
    name=$1.$(basename "$2" .cu)
    code=$work/$name.s
    compile "$1" "$2" -O3 -DNDEBUG -S -o "$code" -Wno-pass-failed \
        2>"$work/$name.err" || { echo "$name: NO CODE"; cat "$work/$name.err"; return; }
    [[ $1 =~ ^gfx(908|90a|94|11|120) && $2 =~ op_(matmul|experts_tile|attention_tile) ]] && wanted=1
    found=$(grep -cE 'v_(mfma|wmma)_[fi]32_16x16x' "$code")
    # op_matmul and op_experts_tile have both kinds
    [[ $2 =~ op_(matmul|experts_tile) ]] && ! grep -qE 'v_(mfma|wmma)_i32_16x16x' "$code" && found=0
    # for each kernel: spilled registers, bytes of memory for them and for variables
    awk -v name="$name" -v found="$found" -v wanted="$wanted" '
        /^ *- \.args:|^ *- \.agpr_count:/ { memory = spills = 0 }
        /\.private_segment_fixed_size:/ { memory = $2 }
        /\.symbol:/ { symbol = $2 }
        /\.vgpr_spill_count:/ {
            n++
            # A block of 512 threads leaves 128 registers there, and these caches decode two types.
            if (name == "gfx906.op_attention" && symbol ~ /attention_kernel.*gpu_cache_any.*Li512E/ &&
                memory <= 128) next
            if (memory + $2 > 0) { bad++; print name ": " symbol ": " $2 " spilled, " memory " bytes" }
        }
        /s_swappc/ { calls++ }
        END {
            text = n " kernels, " found " matrix instructions"
            if (calls) text = text ", " calls " CALLS"
            if ((found > 0) != wanted) { text = text ", WANTED " (wanted ? "SOME" : "NONE"); bad++ }
            print name ": " text (bad || calls || !n ? ": NOT AS WANTED" : ": OK")
        }' "$code"
    rm "$code"
}
check_language() { # arch file...
    local arch=$1 file
    shift
    for file in "$@"; do
        compile "$arch" "$file" -O0 -Xclang -disable-llvm-passes -emit-llvm -S -o /dev/null ||
            { echo "$arch: $file: DOES NOT COMPILE"; return; }
    done
    echo "$arch: compiles: OK"
}
export -f compile check_code check_language check_loads check_order

{
    for arch in $archs; do
        case $brief:$arch in
        :* | "$brief:$brief") echo check_language "$arch" src/gpu/cuda/op_*.cu ;;
        # the clock, loads past the caches and byte products; matrix instructions
        *:gfx908 | *:gfx9[04][a2] | *:gfx12*)
            echo check_language "$arch" src/gpu/cuda/op_{exchange,matvec,attention_tile}.cu ;;
        *) echo check_language "$arch" src/gpu/cuda/op_{exchange,matvec}.cu ;;
        esac
    done
    for arch in $code $brief; do echo check_loads "$arch"; done
    for arch in $code; do
        echo check_order "$arch" order
        echo check_order "$arch" send
        for file in src/gpu/cuda/op_*.cu; do echo check_code "$arch" "$file"; done
    done
} | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c '{}' | tee "$work/report"
! grep -qv ': OK$' "$work/report"
