#!/bin/sh
# Makes a chroot of a newer Debian with its RabbitMQ in the given folder, for --rabbitmq. Needs root,
# a minute and 400 MB.
# Usage: rabbitmq-chroot.sh 4.0|4.3 DIR      ISTHMUS_MIRROR: another Debian mirror
set -eu
scripts=$(cd "$(dirname "$0")" && pwd)

version=$1
target=$2
mirror=${ISTHMUS_MIRROR:-http://deb.debian.org/debian}
log=$target.log

case $version in
4.0) suite=trixie ;;
4.3) suite=forky ;;
*)
    echo "usage: $0 4.0|4.3 DIR" >&2
    exit 2
    ;;
esac

installed() {
    ls "$1/usr/lib/rabbitmq/lib/rabbitmq_server-$version".*/sbin/rabbitmq-server >/dev/null 2>&1
}

if installed "$target"; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "a chroot with RabbitMQ $version can only be made by root (try: sudo make ...)" >&2
    exit 2
fi
mkdir -p "$(dirname "$target")"

# Only one at a time; the other then finds it done.
if [ "${ISTHMUS_CHROOT_LOCKED:-}" != yes ]; then
    exec env ISTHMUS_CHROOT_LOCKED=yes flock "$target.lock" "$0" "$@"
fi

if ! command -v debootstrap >/dev/null 2>&1; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "a chroot is made by debootstrap: install it, then run this again" >&2
        exit 2
    fi
    echo "installing debootstrap ..."
    if ! "$scripts/install-packages.sh" debootstrap debian-archive-keyring >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        exit 1
    fi
fi

# An older debootstrap does not know the newest suites; all since trixie are made in the same way.
recipes=/usr/share/debootstrap/scripts
recipe=$recipes/$suite
[ -e "$recipe" ] || recipe=$recipes/trixie

printf 'making a Debian %s with RabbitMQ %s in %s ... ' "$suite" "$version" "$target"
# Moved to its name when it is whole: an interrupted one is never taken for good.
rm -rf "$target" "$target.part"

if ! debootstrap --variant=minbase --include=rabbitmq-server \
    --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
    "$suite" "$target.part" "$mirror" "$recipe" >"$log" 2>&1; then
    echo "failed"
    echo "--- the end of $log:" >&2
    tail -n 20 "$log" >&2
    exit 1
fi
if ! installed "$target.part"; then
    echo "failed"
    echo "Debian $suite has no RabbitMQ $version any more, but:" >&2
    ls "$target.part/usr/lib/rabbitmq/lib" >&2 || true
    exit 1
fi
rm -f "$target.part"/var/cache/apt/archives/*.deb
mv "$target.part" "$target"
echo "done"
