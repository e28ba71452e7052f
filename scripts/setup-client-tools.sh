#!/bin/sh
# setup-client-tools.sh: puts clients of other protocols and libraries, for tests, into .tools, unless
# they are there: Python's MQTT and STOMP clients, and jars of Java's. Exit 2: something is missing
# that only you can install; it says what.
set -eu
cd "$(dirname "$0")/.."

command -v java >/dev/null 2>&1 || {
    echo "the tests of Java clients need a Java runtime, 17 (java is not in PATH): install default-jre-headless" >&2
    exit 2
}
mkdir -p .tools
if ! command -v mvn >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    printf 'installing Maven ... '
    if scripts/install-packages.sh maven >.tools/packages.log 2>&1; then echo "done"; else echo "failed"; fi
fi
# One at a time; the other then finds it done.
flock .tools/clients.lock sh -c \
    'scripts/setup-tool.sh clients && scripts/fetch-jars.sh "Java clients" scripts/clients "$PWD/.tools/client-jars"'
