#!/usr/bin/env bash
# Installs the generators and the fuzzer of openapi.json into a folder outside of the tree, which OPENAPI_TOOLS then names.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 <folder>" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
python3 -m venv "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
mkdir -p "$1/typescript"
cp "$here"/typescript/package.json "$here"/typescript/package-lock.json "$1/typescript/"
npm ci --silent --no-audit --no-fund --prefix "$1/typescript"
