#!/bin/sh
# Builds the native core (core/, in Rust) into .venv. Does nothing, fast, when that is done. Without
# a Rust compiler, or where it fails, says so in one line and ends well: nodes then use the core's
# twins in Python.
set -eu
cd "$(dirname "$0")/.."

stamp=.venv/.isthmus-core
log=.isthmus/core.log
least=1.63

# Changes whenever the core has to be built again.
wanted_stamp() {
    cat core/Cargo.toml core/Cargo.lock core/.cargo/config.toml core/src/*.rs | sha256sum
    pwd -P
}

without() {
    echo "isthmus: without the native core ($1): as correct, but slower" >&2
    exit 0
}

find_cargo() {
    for candidate in cargo "${HOME:-/root}/.cargo/bin/cargo"; do
        if command -v "$candidate" >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
}

# The compiler and the linker that it calls.
is_fit() {
    command -v cc >/dev/null 2>&1 || return 1
    version=$("$(dirname "$1")/rustc" --version 2>/dev/null | cut -d' ' -f2)
    [ -n "$version" ] && [ "$(printf '%s\n%s\n' "$least" "$version" | sort -V | head -n 1)" = "$least" ]
}

install_cargo() {
    command -v apt-get >/dev/null 2>&1 || return 0
    if [ "$(id -u)" -eq 0 ]; then
        scripts/install-packages.sh cargo gcc libc6-dev
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
            scripts/install-packages.sh cargo gcc libc6-dev
    fi
}

build() {
    # Dependencies come with the checkout: Debian 12's cargo would fetch the index of all crates.
    rm -rf core/target/vendor
    mkdir -p core/target
    .venv/bin/python -m tarfile -e core/vendor.tar.xz core/target
    (cd core && "$cargo" build --release --locked --offline)
    folder=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    cp core/target/release/libisthmus_core.so "$folder/isthmus_core.abi3.so.new"
    mv "$folder/isthmus_core.abi3.so.new" "$folder/isthmus_core.abi3.so"
    ISTHMUS_CORE=native .venv/bin/python -c 'import relay.core'
}

[ "${ISTHMUS_CORE:-}" != pure ] || exit 0
if [ -f "$stamp" ] && [ "$(wanted_stamp)" = "$(cat "$stamp")" ]; then
    exit 0
fi
mkdir -p .isthmus
# Only one build at a time in a checkout: the other then finds it done.
if [ "${ISTHMUS_CORE_LOCKED:-}" != yes ]; then
    exec env ISTHMUS_CORE_LOCKED=yes flock .isthmus/core.lock scripts/build-core.sh
fi
: >"$log"
cargo=$(find_cargo)
if [ -z "$cargo" ]; then
    printf 'installing a Rust compiler ... '
    if install_cargo >>"$log" 2>&1 </dev/null; then echo "done"; else echo "failed"; fi
    cargo=$(find_cargo)
fi
[ -n "$cargo" ] || without "no Rust compiler"
is_fit "$cargo" || without "it needs rustc $least or newer, and a C compiler to link with"
printf 'building the native core ... '
if build >>"$log" 2>&1; then
    echo "done"
else
    echo "failed"
    without "the end of $log says why"
fi
wanted_stamp >"$stamp"
