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
# Tests start at once: one of them creates the prefix and starts wine's server and services, the
# others wait. Server and services must not inherit a test's output: CTest waits until all processes
# have closed it, and the services run until the last program under wine ends. The server stays ten
# seconds longer (not with a display, since the next display has another number). 9>&- keeps the
# lock from them.
mkdir -p "$(dirname "$WINEPREFIX")"
(
    flock 9
    if ! [ -e "$WINEPREFIX/ready" ]; then
        cd /
        wineboot -i >/dev/null 2>&1 9>&-
        wineserver -w 9>&-
        touch "$WINEPREFIX/ready"
    fi
    if [ -z "${WINE_DISPLAY:-}" ] && wineserver -p10 </dev/null >/dev/null 2>&1 9>&-; then
        wine cmd /c exit </dev/null >/dev/null 2>&1 9>&- || : # the next line reports it
    fi
) 9>"$WINEPREFIX.lock"
exec wine "$@"
