#!/bin/sh
# Installs what renders and checks the Helm chart into .tools/chart: Helm, compiled by the Go of
# requirements-chart.lock, and the schemas of Kubernetes. Does nothing when all is there.
set -eu
cd "$(dirname "$0")/.."

version=v3.19.0
stamp=.tools/chart/.helm
scripts/setup-tool.sh chart
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$version" ]; then
    exit 0
fi
echo "compiling Helm $version ..."
folder=$PWD/.tools/chart
env PYTHONPATH="$folder" GOBIN="$folder/bin" GOPATH="$folder/go" GOCACHE="$folder/go-build" GOTOOLCHAIN=local GOFLAGS=-modcacherw \
    "$folder/bin/go" install "helm.sh/helm/v3/cmd/helm@$version"
rm -rf "$folder/go" "$folder/go-build"
echo "$version" >"$stamp"
