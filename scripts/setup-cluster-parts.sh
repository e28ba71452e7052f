#!/bin/sh
# setup-cluster-parts.sh: puts what a site of several nodes runs on into .cluster-parts, unless it is
# there: Cassandra's jars; and its Python client into .tools. Exit 2: something is missing that only
# you can install; it says what.
set -eu
cd "$(dirname "$0")/.."

command -v java >/dev/null 2>&1 || {
    echo "Cassandra needs a Java runtime, 17 (java is not in PATH): install openjdk-17-jre-headless" >&2
    exit 2
}
mkdir -p .cluster-parts
# One at a time; the other then finds it done.
exec flock .cluster-parts/lock sh -c \
    'scripts/setup-tool.sh cluster && scripts/fetch-jars.sh Cassandra scripts/cassandra "$PWD/.cluster-parts/cassandra"'
