#!/usr/bin/env bash
# Runs a command 40 days ahead: Node and PostgreSQL alike, without the monotonic clock and the times of files.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: $0 <command> [<argument>…]" >&2; exit 2; }
in_40_days() { faketime -m --exclude-monotonic -f +40d "$@"; }
today=$(($(date +%s) / 86400))
ahead=$(($(in_40_days node -p 'Math.floor(Date.now() / 86_400_000)') - today))
[ "$ahead" -ge 40 ] || { echo "the clock is $ahead days ahead instead of 40" >&2; exit 1; }
in_40_days "$@"
