#!/bin/sh
# wine.sh PROGRAM.exe ARGUMENTS...: runs a program of the Windows build under wine, with a private
# prefix (a drive C: and a registry) and without wine's messages. CMake runs tests with it.
# WINEPREFIX chooses another prefix; with WINE_DISPLAY the program sees that display, otherwise none.
set -eu
case "$1" in */*) folder=$(cd "$(dirname "$1")" && pwd) ;; *) folder=$PWD ;; esac
# The prefix is in the build folder, wherever in it the program is.
while [ "$folder" != / ] && ! [ -e "$folder/CMakeCache.txt" ]; do folder=$(dirname "$folder"); done
[ "$folder" != / ] || folder=${TMPDIR:-/tmp}
export WINEPREFIX="${WINEPREFIX:-$folder/wine${WINE_DISPLAY:+-display}}"
export WINEDEBUG="${WINEDEBUG:--all}"
# Neither .NET nor a browser: setting up a prefix would ask for them.
export WINEDLLOVERRIDES="${WINEDLLOVERRIDES:-mscoree,mshtml=}"
unset DISPLAY
[ -z "${WINE_DISPLAY:-}" ] || export DISPLAY="$WINE_DISPLAY"
export LC_ALL=C.UTF-8 # names of files are UTF-8
if ! [ -e "$WINEPREFIX/ready" ]; then
    # Tests start at once: one of them makes the prefix, the others wait.
    mkdir -p "$(dirname "$WINEPREFIX")"
    (
        flock 9
        if ! [ -e "$WINEPREFIX/ready" ]; then
            cd /
            wineboot -i >/dev/null 2>&1
            wineserver -w
            touch "$WINEPREFIX/ready"
        fi
    ) 9>"$WINEPREFIX.lock"
fi
exec wine "$@"
