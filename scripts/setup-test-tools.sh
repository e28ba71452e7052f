#!/bin/sh
# Installs what the tests of the page need, beside .venv: Chromium from Debian's packages, and
# Playwright and axe-core into .tools/page. Does nothing when all is there. ISTHMUS_CHROMIUM names
# another Chromium, where the system has no package of one; without any, these tests are skipped.
set -eu
cd "$(dirname "$0")/.."

install_chromium() {
    # Ubuntu's package is a snap, which containers cannot install.
    # shellcheck source=/dev/null
    [ -r /etc/os-release ] && [ "$(. /etc/os-release && echo "$ID")" = debian ] || return 1
    echo "installing chromium ..."
    if [ "$(id -u)" -eq 0 ]; then
        scripts/install-packages.sh chromium >/dev/null
    elif command -v sudo >/dev/null 2>&1; then
        sudo scripts/install-packages.sh chromium >/dev/null
    else
        return 1
    fi
}

if ! command -v "${ISTHMUS_CHROMIUM:-/usr/bin/chromium}" >/dev/null 2>&1 && ! install_chromium; then
    echo "no Chromium here, so the tests of the page in a browser are skipped: name one with" \
        "ISTHMUS_CHROMIUM=/path/to/chromium" >&2
fi
scripts/setup-tool.sh page
.venv/bin/python scripts/fetch_axe.py
