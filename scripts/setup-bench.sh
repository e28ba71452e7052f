#!/bin/sh
# setup-bench.sh nats|kafka: puts what a way of the benchmarks runs into .bench, unless it is there:
# nats-server, built by Go from the modules that benchmarks/compare/nats/go.sum names; or the jars of
# Kafka and MirrorMaker 2 that benchmarks/compare/kafka/jars.sha256 names, copied by Maven, and
# Kafka's Python client. Exit 2: something is missing that only you can install; it says what.
set -eu
cd "$(dirname "$0")/.."

folder=$PWD/.bench
product=${1:-}
PATH=$PATH:/usr/local/go/bin
mkdir -p "$folder"

# One at a time; the other then finds it done.
if [ "${ISTHMUS_BENCH_LOCKED:-}" != yes ]; then
    exec env ISTHMUS_BENCH_LOCKED=yes flock "$folder/lock" "$0" "$@"
fi

# need COMMAND WHAT PACKAGE
need() {
    command -v "$1" >/dev/null 2>&1 || {
        echo "measuring $product needs $2 ($1 is not in PATH): install $3, or name other rows" >&2
        exit 2
    }
}

# step TEXT COMMAND...: one line for it; all it prints goes to a log, shown when it fails.
step() {
    printf '%s ... ' "$1"
    shift
    if "$@" >"$folder/$product.log" 2>&1 </dev/null; then
        echo "done"
    else
        echo "failed"
        tail -n 20 "$folder/$product.log" >&2
        exit 1
    fi
}

# The commands of a step are chained: a condition, as a step is, switches `set -e` off.
build_nats_server() {
    # By go.sum alone: neither a checksum database nor another Go is asked.
    cd benchmarks/compare/nats &&
        GOFLAGS='' GOTOOLCHAIN=local go build -trimpath -mod=readonly -buildvcs=false \
            -o "$folder/nats-server.part" github.com/nats-io/nats-server/v2 &&
        mv "$folder/nats-server.part" "$folder/nats-server" &&
        cd - >/dev/null
}

# is_made_of STAMP FILE...: whether the last set-up saw these very files.
is_made_of() {
    stamp=$1
    shift
    [ -f "$stamp" ] && [ "$(cat "$@" | sha256sum)" = "$(cat "$stamp")" ]
}

case $product in
nats)
    files="benchmarks/compare/nats/go.mod benchmarks/compare/nats/go.sum"
    # shellcheck disable=SC2086
    if ! is_made_of "$folder/nats.stamp" $files || [ ! -x "$folder/nats-server" ]; then
        need go "Go 1.26 or newer" golang
        step "building nats-server" build_nats_server
        # shellcheck disable=SC2086
        cat $files | sha256sum >"$folder/nats.stamp"
    fi
    ;;
kafka)
    need java "a Java runtime, 17 or newer" default-jre-headless
    scripts/setup-tool.sh bench
    scripts/fetch-jars.sh Kafka benchmarks/compare/kafka "$folder/kafka"
    ;;
*)
    echo "usage: $0 nats|kafka" >&2
    exit 2
    ;;
esac
