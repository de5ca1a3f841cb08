#!/bin/sh
# wine-display.sh PROGRAM.exe ARGUMENTS...: as wine.sh, with an X server in memory, without which wine
# has no Vulkan, and with Mesa's Vulkan driver for CPUs. Ends with 77 where one of them is missing.
set -eu
drivers=/usr/share/vulkan/icd.d
for driver in $drivers/lvp_icd.x86_64.json $drivers/lvp_icd.json; do [ ! -e "$driver" ] || break; done
if ! command -v Xvfb >/dev/null || ! [ -e "$driver" ]; then
    echo "SKIPPED: install xvfb and mesa-vulkan-drivers to test the Vulkan backend under wine"
    exit 77
fi
number=$(mktemp)
Xvfb -displayfd 3 -nolisten tcp -screen 0 640x480x24 3>"$number" 2>/dev/null &
server=$!
trap 'kill $server; rm -f "$number"' EXIT
while ! [ -s "$number" ]; do
    kill -0 $server || { echo "Xvfb does not start" >&2; exit 1; }
    sleep 0.1
done
export WINE_DISPLAY=":$(cat "$number")" VK_ICD_FILENAMES="$driver"
"$(dirname "$0")/wine.sh" "$@"
