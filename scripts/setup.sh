#!/bin/sh
# Sets up .venv: `setup.sh run` for the program, `setup.sh dev` for its tests as well. Called by the Makefile. Running
# it again does only what is missing. Needs a POSIX shell, Python 3.11 or newer, and a package index.
set -eu

kind=$1
lock=requirements.lock
[ "$kind" = dev ] && lock=requirements-dev.lock

# Variables that another project set must not affect this one.
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV VIRTUAL_ENV
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf '%s\n' "$*" >&2; }

fail() {
    wait
    say "setup: $1"
    shift
    for line in "$@"; do say "       $line"; done
    exit 1
}

# Installs Debian packages if possible: as root, on a system with apt. Otherwise returns 1.
install_debian() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" = 0 ] || return 1
    say "setup: installing $* with apt-get"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return 0
    # The package lists may be missing or outdated.
    apt-get update -qq >/dev/null 2>&1 || return 1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

find_python() {
    for name in ${PYTHON:-} python3.11 python3 python3.12 python3.13 python3.14 python; do
        command -v "$name" >/dev/null 2>&1 || continue
        "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        printf '%s\n' "$name"
        return 0
    done
    return 1
}

make_venv() {
    rm -rf .venv
    "$python" -m venv .venv >/dev/null 2>&1 && return 0
    rm -rf .venv
    return 1
}

if ! .venv/bin/python -c 'import pip' >/dev/null 2>&1; then
    python=$(find_python) || fail "Python 3.11 or newer is needed, and none was found." \
        "On Debian 12 or Ubuntu 24.04: sudo apt-get install python3 python3-venv" \
        "Elsewhere: https://www.python.org/downloads/ . Or name one: make run PYTHON=/path/to/python3.11"
    say "setup: making .venv with $("$python" --version 2>&1)"
    if ! make_venv; then
        # On Debian, the module venv is in a separate package.
        version=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        install_debian "$version" || install_debian python3-venv || true
        make_venv || fail "$python can't make a virtual environment." \
            "On Debian and Ubuntu: sudo apt-get install $version"
    fi
fi

# What the tests need beside Python packages: tools, a database, MCP servers, a browser. What is missing costs tests.
prepare_tests() {
    missing=
    command -v tmux >/dev/null 2>&1 || missing="$missing tmux"
    command -v rg >/dev/null 2>&1 || missing="$missing ripgrep"
    command -v git >/dev/null 2>&1 || missing="$missing git"
    command -v bwrap >/dev/null 2>&1 || missing="$missing bubblewrap"
    command -v faketime >/dev/null 2>&1 || missing="$missing faketime"
    # shellcheck disable=SC2086  # a list of words
    if [ -n "$missing" ] && ! install_debian $missing; then
        say "setup: not here, and not installable:$missing. The tests that need them are skipped."
        say "       On Debian and Ubuntu: sudo apt-get install$missing"
    fi
    if ! [ -e /usr/lib/postgresql ] && ! command -v initdb >/dev/null 2>&1; then
        # The tests start a server of their own; Debian's package would make and start another.
        mkdir -p /etc/postgresql-common 2>/dev/null && [ ! -e /etc/postgresql-common/createcluster.conf ] &&
            echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
        install_debian postgresql || say "setup: no PostgreSQL is here, and none is installable. The tests with it are skipped."
    fi
    # MCP servers from npm, for the tests. None of their code runs here.
    if ! command -v npm >/dev/null 2>&1; then
        say "setup: no npm is here. The tests with MCP servers from npm are skipped."
    elif ! cmp -s tests/strangers/package-lock.json .venv/npm/installed; then
        mkdir -p .venv/npm
        cp tests/strangers/package.json tests/strangers/package-lock.json .venv/npm
        if npm ci --prefix .venv/npm --ignore-scripts --no-audit --no-fund --silent >/dev/null 2>&1; then
            cp tests/strangers/package-lock.json .venv/npm/installed
        else
            say "setup: npm could not install its MCP servers. The tests with them are skipped."
        fi
    fi
    # Installed separately: it is large, and if it can't be installed, everything else must be.
    if ! command -v chromium >/dev/null 2>&1 && ! command -v chromium-browser >/dev/null 2>&1 &&
        ! command -v google-chrome >/dev/null 2>&1 && ! install_debian chromium; then
        say "setup: no Chromium is here, and none is installable. The tests of the browser tool and of the web pages in a browser are skipped."
    fi
}

# Meanwhile pip installs, which uses one core and mostly waits for the network.
[ "$kind" = dev ] && prepare_tests &

stamp=.venv/$lock.installed
if ! cmp -s "$lock" "$stamp"; then
    say "setup: installing what $lock names"
    .venv/bin/python -m pip install -qq --no-deps --require-hashes -r "$lock" ||
        fail "the packages in $lock could not be installed; pip says why above." \
            "Is a package index reachable? What pip is told about it: .venv/bin/pip config list"
    cp "$lock" "$stamp"
fi

# The lock file determines all versions, so nothing is resolved. The package itself is the working tree.
.venv/bin/python -m pip install -qq --no-deps --no-build-isolation --editable . ||
    fail "the package could not be installed; pip says why above."
wait
