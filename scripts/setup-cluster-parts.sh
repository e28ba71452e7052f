#!/bin/sh
# setup-cluster-parts.sh: puts what a site of several nodes runs on into .cluster-parts, unless it is
# there: the jars of Cassandra that scripts/cassandra/jars.sha256 names, copied by Maven, and its
# Python client. Exit 2: something is missing that only you can install; it says what.
set -eu
cd "$(dirname "$0")/.."

folder=$PWD/.cluster-parts
jars=$PWD/scripts/cassandra/jars.sha256
mkdir -p "$folder"

# One at a time; the other then finds it done.
if [ "${ISTHMUS_PARTS_LOCKED:-}" != yes ]; then
    exec env ISTHMUS_PARTS_LOCKED=yes flock "$folder/lock" "$0" "$@"
fi

# need COMMAND WHAT PACKAGE
need() {
    command -v "$1" >/dev/null 2>&1 || {
        echo "Cassandra needs $2 ($1 is not in PATH): install $3" >&2
        exit 2
    }
}

copy_jars() {
    rm -rf "$folder/cassandra" "$folder/cassandra.part" &&
        mvn -B -q -f scripts/cassandra/pom.xml \
            org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
            -DoutputDirectory="$folder/cassandra.part" -DincludeScope=runtime &&
        (cd "$folder/cassandra.part" && sha256sum --check --strict --quiet "$jars") &&
        mv "$folder/cassandra.part" "$folder/cassandra"
}

need java "a Java runtime, 17" openjdk-17-jre-headless
scripts/setup-tool.sh cluster
stamp=$(cat scripts/cassandra/pom.xml "$jars" | sha256sum)
if [ ! -d "$folder/cassandra" ] || [ "$(cat "$folder/cassandra.stamp" 2>/dev/null)" != "$stamp" ]; then
    need mvn "Maven" maven
    printf 'fetching Cassandra ... '
    if copy_jars >"$folder/cassandra.log" 2>&1 </dev/null; then
        echo "done"
    else
        echo "failed"
        tail -n 20 "$folder/cassandra.log" >&2
        exit 1
    fi
    echo "$stamp" >"$folder/cassandra.stamp"
fi
