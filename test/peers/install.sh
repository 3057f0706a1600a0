#!/usr/bin/env bash
# Installs other implementations of CoAP into a folder outside of the tree, which COAP_PEERS then names: aiocoap of PyPI, go-coap with the
# compiler of Go, and Californium of Maven Central with the compiler of Java. Without one of them, its tests are skipped.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 <folder>" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "$1/java"
folder="$(cd "$1" && pwd)"
python3 -m venv "$folder/python"
"$folder/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/python/requirements.txt"
(cd "$here/go" && go build -o "$folder/go-observe" .)
# Digest, and path in the repository.
while read -r digest path; do
  jar="$folder/java/$(basename "$path")"
  curl --fail --silent --show-error --location --output "$jar" "https://repo1.maven.org/maven2/$path"
  echo "$digest  $jar" | sha256sum --check --quiet
done <"$here/java/jars"
javac -cp "$folder/java/*" -d "$folder/java" "$here/java/Observe.java"
