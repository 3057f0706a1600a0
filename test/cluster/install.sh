#!/usr/bin/env bash
# Installs the Patroni of deploy/ha/requirements.txt into a folder outside of the tree, whose `bin` then has to be in PATH. The package of
# Debian 12 is older than deploy/ha/ requires. Debian's Python, because PostgreSQL and Patroni run as a user without access to another one.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 <folder>" >&2; exit 2; }
root="$(cd "$(dirname "$0")/../.." && pwd)"
/usr/bin/python3 -m venv "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check -r "$root/deploy/ha/requirements.txt"
