#!/bin/sh
# Installs the named system packages, as root, without starting any service of theirs: RabbitMQ's
# own broker would take port 5672, Prometheus 9090. What says so to the package tools is put back
# afterwards.
# Usage: install-packages.sh PACKAGE...
set -eu

policy=/usr/sbin/policy-rc.d

# One at a time on a machine; apt's own lock does not cover the policy file.
if [ "${ISTHMUS_PACKAGES_LOCKED:-}" != yes ]; then
    exec env ISTHMUS_PACKAGES_LOCKED=yes flock /run/isthmus-packages.lock "$0" "$@"
fi

is_installed() {
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q ' installed$'
}

# Those whose service nobody asked for.
new_services=
for service in rabbitmq-server prometheus; do
    is_installed "$service" || new_services="$new_services $service"
done

if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\n# While make setup installs packages: start no service.\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt-get -q -o DPkg::Lock::Timeout=300 update
apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"

# Nor at the next boot: nobody asked for a service of the system's. One that was there stays as it is.
for service in $new_services; do
    if [ -d /run/systemd/system ] && systemctl cat "$service.service" >/dev/null 2>&1; then
        systemctl disable "$service.service"
    fi
done
