#!/usr/bin/env bash
# Debian's docker-registry 2.8.2 answers 404 to a client that accepts everything (`Accept: */*`, what curl and most HTTP libraries send) when the
# tag is an OCI manifest, and 200 when the media type is named. RFC 9110 section 12.5.1 lets `*/*` match any media type. A client that looks
# whether an artifact exists, without naming its type, is told that it does not.
# Needs Linux with apt of Debian 12, dpkg, curl and sha256sum. Exits 0 while the behaviour is as described.
set -euo pipefail
version='2.8.2+ds1-1'
work=$(mktemp -d)
server=''
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq "docker-registry=$version" >/dev/null
dpkg -x docker-registry_*.deb .
port=$((20000 + RANDOM % 20000))
cat >config.yml <<YAML
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $work/data}}
http: {addr: 127.0.0.1:$port}
YAML
./usr/bin/docker-registry serve config.yml >registry.log 2>&1 &
server=$!
at="http://127.0.0.1:$port/v2/some/artifact"
for _ in $(seq 50); do curl -sf "http://127.0.0.1:$port/v2/" >/dev/null && break || sleep 0.1; done

blob() { # content: stores it, and prints its descriptor without the media type
  local digest location
  digest="sha256:$(printf %s "$1" | sha256sum | cut -d' ' -f1)"
  location=$(curl -sf -D - -o /dev/null -X POST "$at/blobs/uploads/" | tr -d '\r' | sed -n 's/^Location: //Ip')
  curl -sf -X PUT -H 'Content-Type: application/octet-stream' --data-binary "$1" "$location&digest=$digest" >/dev/null
  printf '"digest":"%s","size":%s' "$digest" "${#1}"
}
type='application/vnd.oci.image.manifest.v1+json'
manifest='{"schemaVersion":2,"mediaType":"'$type'","config":{"mediaType":"application/vnd.oci.image.config.v1+json",'$(blob '{}')'},"layers":[{"mediaType":"application/wasm",'$(blob 'layer')'}]}'
curl -sf -X PUT -H "Content-Type: $type" --data-binary "$manifest" "$at/manifests/1" >/dev/null

ask() { curl -s -o answer -w '%{http_code}' -H "Accept: $1" "$at/manifests/1"; }
echo "docker-registry $version"
named=$(ask "$type")
echo "Accept: $type -> $named"
any=$(ask '*/*')
echo "Accept: */* -> $any $(cat answer)"
both=$(ask "*/*, $type")
echo "Accept: */*, $type -> $both"
[ "$named $any $both" = '200 404 200' ]
