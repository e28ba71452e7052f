#!/bin/sh
# Makes this checkout ready: RabbitMQ and a few tools from the system's packages, Python packages
# from requirements.lock into .venv. Does nothing, fast, when nothing is missing. Exit 2: something
# is missing that only you can install; it says what.
# Usage: setup.sh [audit]      with "audit", what the Spark job needs as well
set -eu
cd "$(dirname "$0")/.."

# Python's own messages and pip's must not depend on the caller's virtual environment.
unset VIRTUAL_ENV PYTHONHOME PYTHONPATH

extra=${1:-}
stamp=.venv/.isthmus-setup$extra
log_folder=.isthmus
log=$log_folder/setup.log

python_is_fit() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

python_has_venv() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 && python_is_fit "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
}

has_rabbitmq() {
    for server in /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server; do
        [ -f "$server" ] && command -v erl >/dev/null 2>&1 && return
    done
    return 1
}

# The names of the system packages that are missing.
missing_packages() {
    has_rabbitmq || echo rabbitmq-server
    command -v amqp-publish >/dev/null 2>&1 || echo amqp-tools
    [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e "${PIP_CERT:-}" ] || echo ca-certificates
    if [ -z "$python" ]; then
        echo python3 python3-venv
    elif [ ! -x .venv/bin/python ] && ! python_has_venv "$python"; then
        # Debian's own Python; any other brings these.
        echo python3-venv
    fi
    if [ "$extra" = audit ] && ! command -v java >/dev/null 2>&1; then
        echo default-jre-headless
    fi
}

# wanted_stamp LOCK: changes whenever .venv has to be looked at again.
wanted_stamp() {
    cat requirements.lock pyproject.toml scripts/setup.sh "$1" | sha256sum
    "$python" -c 'import sys; print(sys.version)'
    # What is in .venv names its own place: a checkout that was moved or copied needs another.
    pwd -P
}

# Whether .venv was made here, by the Python that is to be used.
venv_is_ours() {
    [ -x .venv/bin/python ] && [ -f .venv/pyvenv.cfg ] || return 1
    case $(cat .venv/pyvenv.cfg) in
    *" $(pwd -P)/.venv"*) [ "$(version_of .venv/bin/python)" = "$(version_of "$python")" ] ;;
    *) return 1 ;;
    esac
}

is_supported_system() {
    [ -r /etc/os-release ] && command -v apt-get >/dev/null 2>&1 || return 1
    # shellcheck source=/dev/null
    case $(. /etc/os-release && echo "$ID ${VERSION_ID:-999}") in
    "debian 12"* | "debian 13"* | "debian 14"* | "debian 999" | "ubuntu 24."* | "ubuntu 25."* | \
        "ubuntu 26."*) return 0 ;;
    *) return 1 ;;
    esac
}

say_what_to_install() {
    {
        echo "isthmus: $1"
        echo "Please install, then run this again:"
        echo "  - Python 3.11 or newer, with venv and pip"
        echo "  - RabbitMQ server 3.10 or newer (with Erlang), in /usr/lib/rabbitmq/lib/rabbitmq_server-*"
        echo "  - amqp-publish and amqp-consume (rabbitmq-c's tools), and CA certificates"
        if [ "$extra" = audit ]; then echo "  - a Java runtime, 17 or newer"; fi
        echo "On Debian 12 or 13 and Ubuntu 24.04 that is:"
        echo "  apt-get install $packages"
    } >&2
    exit 2
}

# step TEXT COMMAND...: one line for it; all it prints goes to the log, shown when it fails.
step() {
    title=$1
    shift
    printf '%s ... ' "$title"
    if "$@" >>"$log" 2>&1 </dev/null; then
        echo "done"
    else
        echo "failed"
        echo "--- the end of $log:" >&2
        tail -n 20 "$log" >&2
        exit 1
    fi
}

install_system_packages() {
    is_supported_system || say_what_to_install "cannot install packages on this system by itself."
    if [ "$(id -u)" -eq 0 ]; then
        # shellcheck disable=SC2086
        step "installing $packages" scripts/install-packages.sh $packages
    elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        echo "root is needed, by sudo, to install: $packages"
        sudo -v || say_what_to_install "sudo did not work."
        # sudo drops the environment; apt may need the proxies in it.
        # shellcheck disable=SC2086
        step "installing $packages" sudo env \
            ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
            ${no_proxy:+"no_proxy=$no_proxy"} scripts/install-packages.sh $packages
    else
        say_what_to_install "neither root nor sudo to install packages with."
    fi
}

install_python_packages() {
    # Keeps what is there already; only another Python or another place needs all anew.
    if venv_is_ours; then
        rm -f "$stamp"
    else
        rm -rf .venv
    fi
    step "making .venv" "$python" -m venv .venv
    pip="env PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip --no-input"
    # shellcheck disable=SC2086
    {
        step "installing Python packages" $pip install --require-hashes -r requirements.lock
        if [ "$extra" = audit ]; then
            step "installing Python packages for audits" $pip install --no-build-isolation \
                --require-hashes -r "$python_lock"
        fi
        step "installing isthmus itself" $pip install --no-deps --no-build-isolation -e .
        step "checking that all fits together" $pip check
        # Nodes start faster, also where PYTHONDONTWRITEBYTECODE keeps them from doing it themselves.
        step "compiling isthmus" .venv/bin/python -m compileall -q \
            dedup federation isthmus relay simulation spark_audit wan_proxy
    }
}

case $extra in
"") python_lock=requirements.lock ;;
audit) python_lock=requirements-audit.lock ;;
*)
    echo "usage: $0 [audit]" >&2
    exit 2
    ;;
esac

python=$(find_python)
packages=$(missing_packages | tr '\n' ' ')
packages=${packages% }
if [ -z "$packages" ] && [ -x .venv/bin/python ] && [ -f "$stamp" ] &&
    [ "$(wanted_stamp "$python_lock")" = "$(cat "$stamp")" ]; then
    exec scripts/build-core.sh
fi

# Only one set-up at a time in a checkout: the other then finds it done.
mkdir -p "$log_folder"
if [ "${ISTHMUS_SETUP_LOCKED:-}" != yes ]; then
    exec env ISTHMUS_SETUP_LOCKED=yes flock "$log_folder/setup.lock" scripts/setup.sh "$@"
fi

: >"$log"
if [ -n "$packages" ]; then
    install_system_packages
    python=$(find_python)
    packages=$(missing_packages | tr '\n' ' ')
    [ -z "$packages" ] || say_what_to_install "still missing after installing: $packages"
fi
if [ ! -f "$stamp" ] || [ "$(wanted_stamp "$python_lock")" != "$(cat "$stamp")" ] ||
    [ ! -x .venv/bin/python ]; then
    install_python_packages
    wanted_stamp "$python_lock" >"$stamp.new"
    mv "$stamp.new" "$stamp"
    if [ "$extra" = audit ]; then
        # All of the plain set-up is in it.
        wanted_stamp requirements.lock >.venv/.isthmus-setup
    fi
fi
scripts/build-core.sh
