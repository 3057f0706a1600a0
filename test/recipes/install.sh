#!/usr/bin/env bash
# Installs the compilers of the module guides that npm, PyPI and rustup have into a folder outside of the tree, which
# RECIPE_TOOLS then names. Without one of them, its recipes are skipped. Debian's packages are in the guide of C.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 <folder>" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "$1"
cp "$here"/npm/package.json "$here"/npm/package-lock.json "$1"
npm ci --silent --no-audit --no-fund --prefix "$1"
python3 -m venv "$1/python"
"$1/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
printf '#!/bin/sh\nexec "%s" -m ziglang "$@"\n' "$1/python/bin/python3" >"$1/python/bin/zig"
chmod +x "$1/python/bin/zig"
if command -v rustup >/dev/null; then
  timeout 120 rustup target add wasm32-unknown-unknown wasm32-wasip1 wasm32-wasip2 2>/dev/null ||
    echo 'rustup cannot install targets here: recipes of Rust are skipped' >&2
fi
