#!/bin/sh
# setup-tool.sh NAME: installs what requirements-NAME.lock says into .tools/NAME, apart from .venv,
# for a tool that only some targets of the Makefile need. Does nothing when it is there.
set -eu
cd "$(dirname "$0")/.."

lock=requirements-$1.lock
folder=.tools/$1
stamp=$folder/.installed
if [ -f "$stamp" ] && cmp -s "$lock" "$stamp"; then
    exit 0
fi
echo "installing what $lock says into $folder ..."
rm -rf "$folder"
.venv/bin/python -m pip --no-input install --quiet --disable-pip-version-check --require-hashes \
    --no-warn-conflicts --target "$folder" -r "$lock"
cp "$lock" "$stamp"
