#!/bin/bash
# Reads the GPU sources as HIP for every AMD family that they are written for, with a current clang:
# language, names and instructions that a family lacks. Of prompts' matrix products machine code is
# made too: families with matrix instructions have to use them, and none may spill; and of a block's
# release of what its waves stored. No GPU is needed.
# Debian: clang-19 and the headers of libamdhip64-dev, which `--install` brings.
set -u
cd "$(dirname "$0")/.." || exit 1
CLANG=${CLANG:-clang-19}
ARCHS=${*:-gfx906 gfx908 gfx90a gfx942 gfx1010 gfx1030 gfx1031 gfx1032 gfx1100 gfx1101 gfx1102 gfx1151 gfx1200 gfx1201}
if [ "${1:-}" = --install ]; then
    exec apt-get install -y --no-install-recommends clang-19 libamdhip64-dev
fi
if ! command -v "$CLANG" >/dev/null; then
    echo "no $CLANG: scripts/check-hip.sh --install, or name one in CLANG" >&2
    exit 1
fi
work=$(mktemp -d) || exit 1
trap 'rm -r "$work"' EXIT

compile() { # arch file options...
    "$CLANG" -x hip -std=c++17 --cuda-device-only --offload-arch="$1" -nogpulib -DGPU_HIP -Wall \
        -Wno-unused-result -Isrc/gpu -Isrc/gpu/cuda -Isrc/gpu/hip -Isrc/base -Isrc/quant "${@:3}" "$2"
}

# What the headers take from AMD's device library, which is not here: calls would spill everything.
cat >"$work/library.h" <<'END'
#define LIBRARY extern "C" __attribute__((device)) inline
LIBRARY unsigned long __ockl_get_local_id(unsigned) { return __builtin_amdgcn_workitem_id_x(); }
LIBRARY unsigned long __ockl_get_group_id(unsigned i) {
    return i == 0   ? __builtin_amdgcn_workgroup_id_x()
           : i == 1 ? __builtin_amdgcn_workgroup_id_y()
                    : __builtin_amdgcn_workgroup_id_z();
}
LIBRARY unsigned long __ockl_get_num_groups(unsigned i) {
    return ((const unsigned *)(const void *)__builtin_amdgcn_dispatch_ptr())[3 + i];
}
#include <hip/hip_runtime.h>
LIBRARY void __atomic_work_item_fence(__cl_mem_fence_flags, __memory_order, __memory_scope scope) {
    if (scope == __memory_scope_work_group) __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
    else if (scope == __memory_scope_device) __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
    else __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "");
}
END
cat >"$work/order.cu" <<'END'
#include "gpu_kernel.h"
__global__ void __launch_bounds__(256) order_kernel(float *x, int32_t *arrived) {
    GPU_SHARED(bool, last);
    x[blockIdx.x * 256 + threadIdx.x] = threadIdx.x;
    if (gpu_is_last(arrived, 8, &last)) x[threadIdx.x] += x[threadIdx.x + 256];
}
END

# Whether every wave waits for its stores before the barrier behind which one thread releases them
# to other blocks (gpu_is_last): a barrier alone does not on gfx90a and gfx94x.
check_order() { # arch
    compile "$1" "$work/order.cu" -O3 -S -o "$work/order.s" -include "$work/library.h" \
        -Wno-unused-function &&
        sed -n '/global_store/,/s_barrier/p; /s_barrier/q' "$work/order.s" |
        grep -qE 'vmcnt\(0\)|vscnt null, 0x0|storecnt 0x0'
}

# One line on what became of op_matmul.cu; false where it is not as wanted.
check_code() { # arch
    local code=$work/code.s wanted=0 found spills
    compile "$1" src/gpu/cuda/op_matmul.cu -O3 -DNDEBUG -S -o "$code" -include "$work/library.h" \
        -Wno-pass-failed || { echo "no code"; return 1; }
    [[ $1 =~ ^gfx(908|90a|94|11|120) ]] && wanted=1
    found=$(grep -cE 'v_(mfma|wmma)_f32_16x16x' "$code")
    spills=$(grep -c 'vgpr_spill_count: *[1-9]' "$code")
    echo "$found matrix instructions, $spills kernels with spills"
    [ "$spills" -eq 0 ] && [ $((found > 0)) -eq $wanted ]
}

failed=0
for arch in $ARCHS; do
    result=compiles
    for file in src/gpu/cuda/*.cu; do
        compile "$arch" "$file" -O0 -Xclang -disable-llvm-passes -emit-llvm -S -o /dev/null ||
            { result="does not compile"; failed=1; }
    done
    # One of each kind of matrix instructions, or all that were asked for.
    if [ $# -gt 0 ] || [[ $arch =~ ^gfx(906|908|90a|942|1030|1100|1201)$ ]]; then
        result="$result; $(check_code "$arch")" || { result="$result: NOT AS WANTED"; failed=1; }
        check_order "$arch" || { result="$result; STORES ARE NOT RELEASED"; failed=1; }
    fi
    echo "$arch: $result"
done
exit $failed
