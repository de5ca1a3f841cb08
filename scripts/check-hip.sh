#!/bin/bash
# Reads the GPU sources as HIP for every AMD family that they are written for, with a current clang:
# language, names and instructions that a family lacks. No machine code is made and no GPU is needed.
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
failed=0
for arch in $ARCHS; do
    result=compiles
    for file in src/gpu/cuda/*.cu; do
        "$CLANG" -x hip -std=c++17 -O0 -Xclang -disable-llvm-passes -emit-llvm -S -o /dev/null \
            --cuda-device-only --offload-arch="$arch" -nogpulib -DGPU_HIP -Wall -Wno-unused-result \
            -Isrc/gpu -Isrc/gpu/cuda -Isrc/gpu/hip -Isrc/base -Isrc/quant "$file" ||
            { result="does not compile"; failed=1; }
    done
    echo "$arch: $result"
done
exit $failed
