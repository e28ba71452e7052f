#!/bin/sh
# Writes requirements.lock, requirements-audit.lock and docker/requirements.lock (what nodes
# need) from pyproject.toml, and those of single tools, with hashes, for every platform and every
# Python from 3.11 on.
# Needs uv.
set -eu
cd "$(dirname "$0")/.."

if ! command -v uv >/dev/null 2>&1; then
    echo "make lock needs uv: install it with 'pipx install uv' (https://docs.astral.sh/uv/)" >&2
    exit 2
fi

lock() {
    output=$1
    shift
    # setuptools is what the project itself, and pyspark, are built with: locked like the rest, so
    # that nothing unlocked is ever installed.
    echo 'setuptools>=77' | uv pip compile --quiet --universal --generate-hashes \
        --python-version 3.11 --no-annotate --custom-compile-command "make lock" \
        "$@" --output-file "$output" pyproject.toml -
}

lock requirements.lock --extra dev "$@"
lock requirements-audit.lock --extra audit --constraint requirements.lock "$@"
# Each alone: they are installed beside the rest, for one target of the Makefile.
for tool in fuzz sbom charts chart docs wheels bench cluster page clients; do
    uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-annotate \
        --custom-compile-command "make lock" "$@" \
        --output-file requirements-$tool.lock requirements-$tool.in
done
# Last, since it has the versions of two of them.
lock docker/requirements.lock --extra cluster --extra otel --constraint requirements.lock \
    --constraint requirements-cluster.lock "$@"
