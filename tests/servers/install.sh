#!/bin/sh
# Make sure that what the tests start is there: Redis, Java and Maven for Kafka, Chromium for the page. Idempotent; `make services` and CI call it.
set -eu

has() { command -v "$1" >/dev/null 2>&1; }

missing=""
has redis-server || has valkey-server || missing="$missing redis-server"
has java || missing="$missing openjdk-17-jre-headless"
has mvn || [ -n "$(ls "$HOME/.cache/banyan/kafka" 2>/dev/null)" ] || missing="$missing maven"
has chromium || has chromium-browser || has google-chrome || missing="$missing chromium"
has chromedriver || has chromium.chromedriver || missing="$missing chromium-driver"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && has apt-get; then
    echo "Installing$missing ..."
    apt-get -qq update
    # Without RUNLEVEL the package of Redis starts a server of its own, which nobody here needs.
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install -y --no-install-recommends $missing >/dev/null
    exit 0
fi
echo "missing:$missing. This user cannot install packages here: install them (apt-get install, brew install), or set" >&2
echo "BANYAN_TEST_REDIS and BANYAN_TEST_KAFKA to servers that may be used. Tests that need them are skipped otherwise." >&2
exit 1
