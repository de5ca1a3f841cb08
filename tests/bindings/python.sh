#!/bin/sh
# Tests the Python binding: python.sh LIBRARY PROGRAM FOLDER. Without Python 3.8 or later the test is
# skipped (77) with a message.
set -eu
library=$1 program=$2 folder=$3
top=$(cd "$(dirname "$0")/../.." && pwd)
python3 -c 'import ctypes, sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || {
    echo "*** SKIPPED: there is no Python 3.8 or later with ctypes; its binding was not tested ***"
    exit 77
}
mkdir -p "$folder"
export PYTHONDONTWRITEBYTECODE=1 POWERINFER_LIBRARY="$library"
exec python3 "$top/tests/bindings/test_python.py" "$top" "$program" "$folder"
