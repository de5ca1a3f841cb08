#!/bin/sh
# Installs the missing packages for builds and tests. When nothing is missing, it prints nothing and
# uses no network. Plain POSIX sh: a fresh machine may have neither compiler nor CMake.
#   scripts/install-deps.sh           for `make run`
#   scripts/install-deps.sh --gpu     also for `make`: clang and its linker, for the kernels of GPUs
#   scripts/install-deps.sh --tests   also for `make test`
#   scripts/install-deps.sh --cpus    also for `make test-cpus`: an emulator of older CPUs
#   scripts/install-deps.sh --kernels also for `make test-kernels`: the same
#   scripts/install-deps.sh --packages       also for `make deb` and `make zip`
#   scripts/install-deps.sh --test-packages  also for `make test-deb` and `make test-zip`
#   scripts/install-deps.sh --arm     for `make test-arm`: a cross compiler, an emulator, and two
#                                     libraries for arm64 (Debian and Ubuntu only)
#   scripts/install-deps.sh --windows for `make windows`: a cross compiler, wine, and libraries that
#                                     windows-libs.sh builds (Debian and Ubuntu only)
set -eu

tests=no
arm=no
emulator=no
gpu=no
kernels=no
packages=no
test_packages=no
windows=no
case "${1:-}" in
    --gpu) gpu=yes ;;
    --tests) tests=yes ;;
    --cpus) tests=yes emulator=yes ;;
    --kernels) tests=yes kernels=yes ;;
    --packages) packages=yes ;;
    --test-packages) packages=yes test_packages=yes ;;
    --arm) arm=yes emulator=yes ;;
    --windows) windows=yes gpu=yes ;;
    "") ;;
    *)
        echo "usage: $0 [--gpu | --tests | --cpus | --kernels | --packages | --test-packages | --arm | --windows]" >&2
        exit 2
        ;;
esac

have() { command -v "$1" >/dev/null 2>&1; }

# Required for any build; the lists below also have packages for some models and for tests.
has_compiler() { have cc || have gcc || have clang; }
has_builder() { have ninja || have make; }
has_library() { have pkg-config && pkg-config --exists "$1"; }

if have apt-get && have dpkg-query; then
    native=$(dpkg --print-architecture)
    installed() { # the native package unless the name has another architecture
        architecture=$native
        case "$1" in *:*) architecture=${1#*:} ;; esac
        dpkg-query -W -f='${Status} ${Architecture}\n' "${1%:*}" 2>/dev/null |
            grep -qxE "install ok installed ($architecture|all)"
    }
    missing=
    want() { installed "$1" || missing="$missing $1"; }
    has_compiler || want gcc
    installed libc6-dev || want libc6-dev
    have cmake || want cmake
    has_builder || want ninja-build
    have pkg-config || want pkg-config
    if [ "$windows" = yes ]; then
        want gcc-mingw-w64-x86-64-posix
        want g++-mingw-w64-x86-64-posix
        want libz-mingw-w64-dev
        want wine
        want wine64
        have glslc || want glslc # the Vulkan backend, with its headers
        want libvulkan-dev
        have Xvfb || want xvfb # its tests: wine has Vulkan only with an X server
        want mesa-vulkan-drivers
        want dpkg-dev # unpacks source packages
        have make || want make
        have zip || want zip
    elif [ "$arm" = no ]; then
        want libpcre2-dev
        want libutf8proc-dev
        want libjansson-dev
        want libedit-dev # line editing in chat
        want libmicrohttpd-dev # serve
        have glslc || want glslc # the Vulkan backend, with its headers
        want libvulkan-dev
        has_library libcurl || want libcurl4-openssl-dev # downloading models
        want liburing-dev # weights from the drive
    else
        # Without the optional libraries: this build tests their absence.
        want gcc-aarch64-linux-gnu
        want libc6-dev-arm64-cross
        want libc6:arm64
        want libcmocka-dev:arm64
    fi
    if [ "$emulator" = yes ]; then
        have qemu-aarch64 || want qemu-user
    fi
    if [ "$tests" = yes ]; then
        want libcmocka-dev
        [ "$arm" = yes ] || want libopenmpi-dev # a model on several machines
        [ "$arm" = yes ] || want openmpi-bin
        have zsh || want zsh # they run the completions
        have fish || want fish
        # The page is tested in a browser, which npm packages drive.
        ! have npm || have chromium || want chromium
        # The proxy example needs nginx; where installed services start at once, the owner decides.
        have nginx || [ -d /run/systemd/system ] || want nginx-light
        have openssl || want openssl
        have curl || want curl
        # The bindings: Python, with pip for its package. Node is the owner's choice.
        have python3 || want python3
        python3 -c 'import ensurepip, venv' 2>/dev/null || want python3-venv
        [ "$arm" = yes ] || want liblapacke-dev # reference for the linear algebra
        have glpsol || want glpk-utils # exact solver, reference for placements
        # A Vulkan driver that runs on the CPU, and the checks of its use.
        [ "$arm" = yes ] || want mesa-vulkan-drivers
        [ "$arm" = yes ] || want vulkan-validationlayers
        have clang-format || have clang-format-14 || want clang-format
    fi
    if [ "$packages" = yes ]; then
        want debhelper
        have objdump || want binutils
    fi
    if [ "$test_packages" = yes ]; then
        have lintian || want lintian
        have debootstrap || want debootstrap
        have unzip || want unzip
        have openssl || want openssl
        have curl || want curl
    fi
    # Releases that have the packages.
    [ "$gpu$kernels" = nono ] || has_library zlib || want zlib1g-dev
    case $gpu$kernels:$(. /etc/os-release && echo "${VERSION_CODENAME:-}") in
    *yes*:bookworm | *yes*:trixie | *yes*:noble)
        version=19
        for found in 16 17 18 21 20 19; do ! have "clang-$found" || version=$found; done
        want "clang-$version"
        # Only code for AMD's GPUs is linked.
        [ "$kernels" = no ] && ! [ -e /dev/kfd ] || want "lld-$version" ;;
    esac
    # The libraries for Windows are built when the compiler is there.
    finish() { [ "$windows" = no ] || "$(dirname "$0")/windows-libs.sh"; }
    if [ -z "$missing" ]; then
        finish
        exit 0
    fi
    echo "installing:$missing" >&2
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        if ! have sudo; then
            echo "install-deps: not root and no sudo: run as root: apt-get install$missing" >&2
            exit 1
        fi
        as_root=sudo
    fi
    case "$missing" in
        *:arm64*) # dpkg must allow a second architecture first; repeating it is harmless
            dpkg --print-foreign-architectures | grep -qx arm64 ||
                $as_root dpkg --add-architecture arm64 ;;
    esac
    # A failed update is not fatal: the package lists may already have the packages.
    $as_root apt-get update -q >&2 || echo "install-deps: apt-get update failed, continuing" >&2
    # shellcheck disable=SC2086  # the list is meant to be split
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends $missing >&2
    finish
    exit 0
fi

if [ "$arm$windows" != nono ]; then
    echo "install-deps: cross-building is only set up for Debian and Ubuntu" >&2
    exit 1
fi

if [ "$packages" = yes ]; then
    echo "install-deps: packages can be built on Debian and Ubuntu only" >&2
    exit 1
fi

# On other systems, report the missing packages, and fail only for required ones.
required=
optional=
has_compiler || required="$required compiler"
have cmake || required="$required cmake"
has_builder || required="$required ninja"
have pkg-config || optional="$optional pkg-config"
has_library libpcre2-8 || optional="$optional pcre2"
has_library libutf8proc || optional="$optional utf8proc"
has_library jansson || optional="$optional jansson"
has_library libedit || optional="$optional libedit"
has_library libmicrohttpd || optional="$optional libmicrohttpd"
has_library libcurl || optional="$optional libcurl"
has_library liburing || optional="$optional liburing"
if [ "$tests" = yes ]; then
    has_library cmocka || required="$required cmocka"
fi
if [ "$emulator" = yes ]; then
    have qemu-x86_64 || optional="$optional qemu-user"
fi
[ -n "$required$optional" ] || exit 0

echo "missing:$required$optional" >&2
if have dnf; then
    echo "sudo dnf install gcc cmake ninja-build pkgconf-pkg-config pcre2-devel" \
        "utf8proc-devel jansson-devel libedit-devel libmicrohttpd-devel libcurl-devel liburing-devel libcmocka-devel clang-tools-extra" >&2
elif have pacman; then
    echo "sudo pacman -S --needed gcc cmake ninja pkgconf pcre2 libutf8proc jansson libedit libmicrohttpd curl liburing" \
        "cmocka clang" >&2
elif have brew; then
    echo "brew install cmake ninja pkg-config pcre2 utf8proc jansson libedit libmicrohttpd curl cmocka clang-format" >&2
else
    echo "install them with this system's package manager" >&2
fi
if [ -n "$required" ]; then
    echo "install-deps: cannot continue without:$required" >&2
    exit 1
fi
echo "install-deps: continuing without the optional packages" >&2
