#!/bin/sh
# Install peers, each in a virtual environment of its own: install.sh [NAME ...]. They lie in
# ~/.cache/satchel-benchmarks/peers (or PEERS_HOME), 1 GB in all, and nothing of the project depends on them.
set -u
home=${PEERS_HOME:-$HOME/.cache/satchel-benchmarks/peers}
mkdir -p "$home"

# mcp-memory-service needs a Python whose SQLite loads extensions, basic-memory one of 3.12 or later.
any='import sys; assert sys.version_info >= (3, 11)'
newer='import sys; assert sys.version_info >= (3, 12)'
loads="$any; import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)"

for name in ${*:-mem0 mcp_memory_service basic_memory}; do
    case $name in
        mem0) package=mem0ai needs=$any ;;
        mcp_memory_service) package=mcp-memory-service-lite needs=$loads ;;
        basic_memory) package=basic-memory needs=$newer ;;
        *) echo "install.sh: there is no adapter for $name" >&2; exit 2 ;;
    esac
    for python in python3 /usr/bin/python3 python3.13 python3.12 "$HOME"/.pyenv/versions/*/bin/python3 none; do
        "$python" -c "$needs" 2>/dev/null && break
    done
    if [ "$python" = none ]; then
        echo "install.sh: no Python here fits $package: $needs" >&2
    elif ! { "$python" -m venv --clear --without-pip "$home/$name" &&
        nice python3 -m pip --python "$home/$name/bin/python" install --quiet --disable-pip-version-check "$package"; }; then
        echo "install.sh: $package could not be installed" >&2
    fi
done
