#!/bin/sh
# Makes a chroot of Debian 13 with RabbitMQ 4.0 in the given folder, for --rabbitmq. Needs root,
# half a minute and 400 MB.
# Usage: rabbitmq4.sh DIR      ISTHMUS_MIRROR: another Debian mirror
set -eu
scripts=$(cd "$(dirname "$0")" && pwd)

target=$1
mirror=${ISTHMUS_MIRROR:-http://deb.debian.org/debian}
log=$target.log

installed() {
    ls "$1"/usr/lib/rabbitmq/lib/rabbitmq_server-4*/sbin/rabbitmq-server >/dev/null 2>&1
}

if installed "$target"; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "make rabbitmq4 needs root: it makes a chroot (try: sudo make rabbitmq4)" >&2
    exit 2
fi
mkdir -p "$(dirname "$target")"

# Only one at a time; the other then finds it done.
if [ "${ISTHMUS_CHROOT_LOCKED:-}" != yes ]; then
    exec env ISTHMUS_CHROOT_LOCKED=yes flock "$target.lock" "$0" "$@"
fi

if ! command -v debootstrap >/dev/null 2>&1; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "make rabbitmq4 needs debootstrap: install it, then run this again" >&2
        exit 2
    fi
    echo "installing debootstrap ..."
    if ! "$scripts/install-packages.sh" debootstrap debian-archive-keyring >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        exit 1
    fi
fi

printf 'making a Debian 13 with RabbitMQ 4 in %s ... ' "$target"
# Moved to its name when it is whole: an interrupted one is never taken for good.
rm -rf "$target" "$target.part"

if ! debootstrap --variant=minbase --include=rabbitmq-server \
    --keyring=/usr/share/keyrings/debian-archive-keyring.gpg trixie "$target.part" "$mirror" >"$log" 2>&1 ||
    ! installed "$target.part"; then
    echo "failed"
    echo "--- the end of $log:" >&2
    tail -n 20 "$log" >&2
    exit 1
fi
rm -f "$target.part"/var/cache/apt/archives/*.deb
mv "$target.part" "$target"
echo "done"
