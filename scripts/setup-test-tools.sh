#!/bin/sh
# Installs what the tests of the page need, beside .venv: Chromium from the system's packages, and
# Playwright and axe-core into .tools/page. Does nothing when all is there.
set -eu
cd "$(dirname "$0")/.."

if ! command -v "${ISTHMUS_CHROMIUM:-chromium}" >/dev/null 2>&1; then
    echo "installing chromium ..."
    if [ "$(id -u)" -eq 0 ]; then
        scripts/install-packages.sh chromium >/dev/null
    else
        sudo scripts/install-packages.sh chromium >/dev/null
    fi
fi
scripts/setup-tool.sh page
.venv/bin/python scripts/fetch_axe.py
