#!/bin/sh
# Makes the secrets and certificates of an installation on Kubernetes, in deploy/kubernetes/secrets.
#
#   deploy/kubernetes/prepare.sh skein.example.com
#
# Nothing that exists is overwritten. Needs openssl.
set -eu

site=${1:?usage: deploy/kubernetes/prepare.sh HOST_NAME}
cd "$(dirname "$0")"
umask 077
mkdir -p secrets/skein

# secret NAME VALUE
secret() {
  [ -e "secrets/skein/$1" ] || printf '%s' "$2" >"secrets/skein/$1"
}
secret secret-key "$(openssl rand -base64 32)"
secret admin-secret "$(openssl rand -hex 16)"
secret worker-token "$(openssl rand -hex 32)"
secret proxy-token "$(openssl rand -hex 32)"
secret redis-password "$(openssl rand -hex 24)"
secret redis-url "redis://default:$(cat secrets/skein/redis-password)@redis:6379"

# certificate NAME SUBJECT_ALT_NAMES
certificate() {
  [ -e "secrets/$1.pem" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 825 \
    -subj "/CN=skein $1" -addext "subjectAltName=$2" -addext 'keyUsage=critical,digitalSignature,keyCertSign' \
    -addext 'extendedKeyUsage=serverAuth' -keyout "secrets/$1.key" -out "secrets/$1.pem" 2>/dev/null
}
# What browsers see: replace both files by a certificate that they trust, or let cert-manager make the Secret skein-edge.
certificate edge "DNS:$site"
# What workers see. They trust this very certificate, so nobody has to sign it.
certificate cluster "DNS:managers,DNS:proxy,DNS:manager"

echo "deploy/kubernetes/secrets is complete. Keep a copy of secrets/skein/secret-key: a backup cannot be restored without it."
