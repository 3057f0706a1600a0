#!/usr/bin/env bash
# Installs published clients of other products into a folder outside of the tree, which COMPATIBILITY_CLIENTS then names.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 <folder>" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "$1/javascript"
cp "$here"/javascript/client/*.json "$1/javascript/"
npm ci --silent --ignore-scripts --no-audit --no-fund --prefix "$1/javascript"
(cd "$here/go" && go build -o "$1/go-client" .)
