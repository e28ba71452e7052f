#!/bin/sh
# Installs the fuzzer into .fuzz/packages, from requirements-fuzz.lock. Does nothing when it is there.
set -eu
cd "$(dirname "$0")/.."

folder=.fuzz/packages
stamp=.fuzz/installed
if [ -f "$stamp" ] && cmp -s requirements-fuzz.lock "$stamp"; then
    exit 0
fi
echo "installing the fuzzer ..."
rm -rf "$folder"
.venv/bin/python -m pip --no-input install --quiet --disable-pip-version-check --require-hashes \
    --target "$folder" -r requirements-fuzz.lock
cp requirements-fuzz.lock "$stamp"
