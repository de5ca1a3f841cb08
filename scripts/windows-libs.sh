#!/bin/sh
# Builds the static libraries of the Windows program from Debian's source packages, since Debian has
# them for Linux only. They are kept outside the tree, so that every clone uses them; nothing is done
# when they are there already. Called by install-deps.sh --windows.
#   scripts/windows-libs.sh [PREFIX]   prints PREFIX with --where
# PREFIX (POWERINFER_WINDOWS_LIBS, else a folder in ~/.cache) gets include/, lib/ with pkg-config
# files, and licenses/ with one file per library.
set -eu

prefix=${POWERINFER_WINDOWS_LIBS:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/powerinfer/windows-libs}
case "${1:-}" in
    --where) echo "$prefix"; exit 0 ;;
    "") ;;
    *) prefix=$1 ;;
esac
script=$(cd "$(dirname "$0")" && pwd)/windows-libs.sh
stamp="$(cksum <"$script") $(. /etc/os-release && echo "${ID:-} ${VERSION_CODENAME:-}")"
if [ "$(cat "$prefix/stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi

host=x86_64-w64-mingw32
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/lists" "$work/logs" "$work/src" "$work/stage"
echo "building libraries for Windows in $prefix (about a minute)" >&2

# ---- sources: the distribution's own lists, read as deb-src by a private configuration
apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)' \
    'Created-By: Packages' 'Component: main' | sort -u |
    while IFS='|' read -r origin uri release component; do
        case $origin in
            Debian) key=/usr/share/keyrings/debian-archive-keyring.gpg ;;
            Ubuntu) key=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
            *) continue ;;
        esac
        [ -e "$key" ] || key=
        echo "deb-src ${key:+[signed-by=$key]} $uri $release $component"
    done >"$work/sources.list"
[ -s "$work/sources.list" ] || { echo "windows-libs: no package source of Debian or Ubuntu" >&2; exit 1; }
apt() {
    apt-get -q -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o APT::Sandbox::User=root -o APT::Get::List-Cleanup=false "$@"
}
apt update >"$work/logs/update" 2>&1 || { cat "$work/logs/update" >&2; exit 1; }
libraries="curl libmicrohttpd pcre2 jansson utf8proc cmocka"
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
for name in $libraries; do
    # A mirror may lack the files of a security update: then as released.
    (cd "$work/src" && { apt source --only-source "$name" || apt source --only-source "$name/$release"; }) \
        >"$work/logs/source" 2>&1 || { cat "$work/logs/source" >&2; exit 1; }
done

# ---- building
cat >"$work/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER $host-gcc-posix)
set(CMAKE_RC_COMPILER $host-windres)
set(CMAKE_FIND_ROOT_PATH /usr/$host)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
END
generator="Unix Makefiles"
command -v ninja >/dev/null && generator=Ninja
flags="-O2 -D_WIN32_WINNT=0x0A00 -DNDEBUG"
source_of() { # PACKAGE: its folder
    for folder in "$work/src/$1"-*/; do echo "${folder%/}"; done
}
by_cmake() { # PACKAGE OPTIONS...
    package=$1
    shift
    cmake -G "$generator" -S "$(source_of "$package")" -B "$work/build/$package" -Wno-dev \
        -DCMAKE_TOOLCHAIN_FILE="$work/toolchain.cmake" -DCMAKE_INSTALL_PREFIX="$prefix" \
        -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="$flags" \
        -DBUILD_SHARED_LIBS=OFF "$@" &&
        cmake --build "$work/build/$package" &&
        DESTDIR="$work/stage" cmake --install "$work/build/$package"
}
build_jansson() {
    by_cmake jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_EXAMPLES=OFF -DJANSSON_WITHOUT_TESTS=ON
}
build_pcre2() {
    by_cmake pcre2 -DPCRE2_SUPPORT_JIT=ON -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF
}
build_utf8proc() {
    by_cmake utf8proc
}
build_cmocka() {
    flags="$flags -D__USE_MINGW_ANSI_STDIO=1" # tests print sizes
    by_cmake cmocka -DWITH_EXAMPLES=OFF -DWITH_STATIC_LIB=ON
}
# HTTP and TLS by Windows itself, nothing else.
build_curl() {
    by_cmake curl -DHTTP_ONLY=ON -DCURL_USE_SCHANNEL=ON -DBUILD_CURL_EXE=OFF -DBUILD_TESTING=OFF \
        -DENABLE_MANUAL=OFF -DENABLE_UNIX_SOCKETS=OFF -DCURL_USE_LIBSSH2=OFF -DUSE_LIBIDN2=OFF \
        -DCURL_USE_LIBPSL=OFF -DCURL_ZLIB=OFF -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF -DUSE_NGHTTP2=OFF
}
build_libmicrohttpd() {
    mkdir -p "$work/build/libmicrohttpd" && cd "$work/build/libmicrohttpd" &&
        "$(source_of libmicrohttpd)/configure" --host=$host --prefix="$prefix" CC=$host-gcc-posix \
        CFLAGS="$flags" --disable-shared --enable-static --disable-https --disable-doc \
        --disable-examples --disable-tools --disable-curl --disable-nls --with-threads=posix &&
        make -C src/microhttpd && make -C src/microhttpd DESTDIR="$work/stage" install &&
        make -C src/include DESTDIR="$work/stage" install &&
        make DESTDIR="$work/stage" install-pkgconfigDATA
}
# Mostly configuration, one step after the other: all at once keep two cores busy.
for name in $libraries; do
    (
        if "build_$name" >"$work/logs/$name" 2>&1; then touch "$work/logs/$name.done"; fi
    ) &
done
wait
for name in $libraries; do
    [ -e "$work/logs/$name.done" ] && continue
    tail -n 40 "$work/logs/$name" >&2
    echo "windows-libs: $name was not built" >&2
    exit 1
done

# ---- the prefix
stage=$work/stage$prefix
# Their headers would otherwise declare functions of a DLL.
sed -i 's/^Cflags:.*/& -DPCRE2_STATIC/' "$stage/lib/pkgconfig/libpcre2-8.pc"
sed -i 's/^Cflags:.*/& -DUTF8PROC_STATIC/' "$stage/lib/pkgconfig/libutf8proc.pc"
sed -i 's/^Cflags:.*/& -DCURL_STATICLIB/' "$stage/lib/pkgconfig/libcurl.pc"
# What they call of Windows.
sed -i 's/^Libs:.*/& -lws2_32/' "$stage/lib/pkgconfig/libmicrohttpd.pc"
sed -i 's/^Libs:.*/Libs: -L${libdir} -lcurl -lws2_32 -lcrypt32 -lbcrypt -ladvapi32/' \
    "$stage/lib/pkgconfig/libcurl.pc"
# Static libraries have no names of their own: these are also names of src/text.
$host-objcopy $($host-nm -g --defined-only "$stage/lib/libjansson.a" |
    sed -n 's/.* T \(utf8_.*\)/--redefine-sym \1=jansson_\1/p') "$stage/lib/libjansson.a"
# Its build always makes a DLL as well.
rm -f "$stage/bin/cmocka.dll" "$stage/lib/libcmocka.dll.a"
mv "$stage/lib/libcmocka-static.a" "$stage/lib/libcmocka.a"
# Debian's own package for Windows has no pkg-config file.
cat >"$stage/lib/pkgconfig/zlib.pc" <<END
Name: zlib
Description: zlib compression library
Version: $(dpkg-query -W -f='${Version}' libz-mingw-w64-dev)
Libs: -L/usr/$host/lib -lz
Cflags: -I/usr/$host/include
END
mkdir "$stage/licenses"
for name in $libraries; do
    cp "$(source_of "$name")/debian/copyright" "$stage/licenses/$name.txt"
done
cp /usr/share/doc/libz-mingw-w64-dev/copyright "$stage/licenses/zlib.txt"
# Linked statically into every program of this compiler.
cp /usr/share/doc/mingw-w64-x86-64-dev/copyright "$stage/licenses/mingw-w64.txt"
cp /usr/share/doc/gcc-mingw-w64-x86-64-posix/copyright "$stage/licenses/gcc-runtime.txt"
# The text that libmicrohttpd's and mingw-w64's terms refer to.
cp /usr/share/common-licenses/LGPL-2.1 "$stage/licenses/LGPL-2.1.txt"
echo "$stamp" >"$stage/stamp"
mkdir -p "$(dirname "$prefix")"
rm -rf "$prefix"
mv "$stage" "$prefix"
