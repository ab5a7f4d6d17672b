#!/bin/sh
# Make sure that the servers that the tests start are there. Idempotent; `make services` and CI call it.
set -eu

if command -v redis-server >/dev/null 2>&1 || command -v valkey-server >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing redis-server ..."
    apt-get -qq update
    # Without this the package starts a server of its own, which nobody here needs.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install -y --no-install-recommends redis-server >/dev/null
    exit 0
fi
echo "redis-server is not there, and cannot be installed by this user; install it (apt-get install redis-server, brew install redis)" >&2
echo "or set BANYAN_TEST_REDIS to a server that may be used. Tests that need it are skipped otherwise." >&2
exit 1
