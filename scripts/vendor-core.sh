#!/bin/sh
# Fetches the crates that core/Cargo.lock names into core/vendor.tar.xz: after a change of
# core/Cargo.toml, with `cargo update` before where versions shall change.
set -eu
cd "$(dirname "$0")/../core"

rm -rf target/vendor
# Not from the archive that is to be written.
mv .cargo/config.toml .cargo/config.toml.aside
trap 'mv .cargo/config.toml.aside .cargo/config.toml' EXIT
cargo vendor --locked --versioned-dirs target/vendor >/dev/null
tar --sort=name --mtime=2026-01-01 --owner=0 --group=0 --numeric-owner -C target -cf - vendor |
    xz -9 >vendor.tar.xz
