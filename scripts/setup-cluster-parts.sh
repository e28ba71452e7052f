#!/bin/sh
# setup-cluster-parts.sh: puts what a site of several nodes runs on into .cluster-parts, unless it is
# there: the jars of Cassandra and of ZooKeeper; and their Python clients into .tools, where .venv
# then finds them. Exit 2: something is missing that only you can install; it says what.
set -eu
cd "$(dirname "$0")/.."

command -v java >/dev/null 2>&1 || {
    echo "Cassandra and ZooKeeper need a Java runtime, 17 (java is not in PATH): install openjdk-17-jre-headless" >&2
    exit 2
}
mkdir -p .cluster-parts
if ! command -v mvn >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    printf 'installing Maven ... '
    if scripts/install-packages.sh maven >.cluster-parts/packages.log 2>&1; then echo "done"; else echo "failed"; fi
fi
# One at a time; the other then finds it done.
flock .cluster-parts/lock sh -c \
    'scripts/setup-tool.sh cluster && scripts/fetch-jars.sh Cassandra scripts/cassandra "$PWD/.cluster-parts/cassandra" && scripts/fetch-jars.sh ZooKeeper scripts/zookeeper "$PWD/.cluster-parts/zookeeper"'
site_packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/.tools/cluster" >"$site_packages/isthmus-cluster.pth"
