#!/usr/bin/env bash
# Installs the engines of docs/guides/history-in-other-engines.md that PyPI has, and an S3 server, into a folder outside of the
# tree, which HISTORY_ENGINES then names. Without it, their tests are skipped. The server is built with Go.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 <folder>" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
python3 -m venv "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
GOBIN="$(cd "$1/bin" && pwd)" go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
