#!/usr/bin/env bash
# Builds the single file of the worker for this machine, and unpacks it below a folder outside of the tree, as `worker`.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 <folder>" >&2; exit 2; }
mkdir -p "$1"
npm run --silent build
node --disable-warning=ExperimentalWarning tools/release.ts "$1/release" "--platforms=linux-$(node -p process.arch)"
unpacked="$(SKEIN_PROGRAM_DIR="$1" "$1/release/skein-worker-linux-$(node -p process.arch)" --unpack-only)"
ln -s "$(basename "$unpacked")" "$1/worker"
