# Functions for tests of packages in a fresh system; sourced, not run. Root only.

# chroot_make FOLDER PACKAGES: a minimal Debian of this machine's release (or of $SUITE) with further
# packages. It goes away when the shell ends.
chroot_make() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "$0: needs root: run it with sudo" >&2
        exit 1
    fi
    chroot_folder=$1
    suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
    rm -rf "$chroot_folder"
    trap chroot_remove EXIT
    trap 'exit 1' INT TERM HUP
    echo "chroot: $suite, minimal${2:+, with $2}"
    if ! debootstrap --variant=minbase ${2:+--include="$2"} "$suite" "$chroot_folder" \
        >"$chroot_folder.log" 2>&1; then
        tail "$chroot_folder.log" >&2
        exit 1
    fi
    mount -t proc proc "$chroot_folder/proc"
}

chroot_remove() {
    # rm must not reach what is mounted.
    if mountpoint -q "$chroot_folder/proc"; then umount "$chroot_folder/proc" || return; fi
    rm -rf --one-file-system "$chroot_folder" "$chroot_folder.log"
}

fail() {
    echo "*** $*" >&2
    exit 1
}

# same WHAT TEXT EXPECTED
same() {
    [ -n "$3" ] && [ "$2" = "$3" ] || fail "$1: \"$2\" instead of \"$3\""
    echo "$1: $2"
}
