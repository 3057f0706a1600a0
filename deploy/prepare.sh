#!/bin/sh
# Makes what a deployment needs and no repository may hold: deploy/skein.env with random secrets, and two certificates.
#
#   deploy/prepare.sh skein.example.com
#
# Nothing that exists is overwritten. Needs openssl.
set -eu

site=${1:?usage: deploy/prepare.sh HOST_NAME}
cd "$(dirname "$0")"
umask 077

if [ -e skein.env ]; then
  echo 'deploy/skein.env is there already and stays as it is'
else
  {
    echo '# Secrets of this installation. Keep a copy of SKEIN_SECRET_KEY: a backup of the database cannot be restored without it. Store it apart from the backups.'
    echo "SKEIN_SITE=$site"
    echo "POSTGRES_PASSWORD=$(openssl rand -hex 24)"
    echo "PATRONI_PASSWORD=$(openssl rand -hex 24)"
    echo "REDIS_PASSWORD=$(openssl rand -hex 24)"
    echo "SKEIN_SECRET_KEY=$(openssl rand -base64 32)"
    echo "SKEIN_ADMIN_EMAIL=admin@$site"
    echo "SKEIN_ADMIN_USERNAME=admin"
    echo "SKEIN_ADMIN_SECRET=$(openssl rand -hex 16)"
    echo "SKEIN_WORKER_TOKEN=$(openssl rand -hex 32)"
    echo "SKEIN_PROXY_TOKEN=$(openssl rand -hex 32)"
  } >skein.env
  echo 'made deploy/skein.env'
fi

# certificate NAME SUBJECT_ALT_NAMES
certificate() {
  if [ -e "certs/$1.pem" ]; then
    echo "deploy/certs/$1.pem is there already and stays as it is"
    return
  fi
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 825 -subj "/CN=skein $1" \
    -addext "subjectAltName=$2" -addext 'keyUsage=critical,digitalSignature,keyCertSign' \
    -addext 'extendedKeyUsage=serverAuth' -keyout "certs/$1.key" -out "certs/$1.pem" 2>/dev/null
  # The containers run as users of their own and must read their key; the folder denies access to other users of this machine.
  chmod 0644 "certs/$1.key" "certs/$1.pem"
  echo "made deploy/certs/$1.pem and deploy/certs/$1.key"
}

mkdir -p certs
chmod 0700 certs
# What browsers and devices see: replace both files by a certificate that they trust.
certificate edge "DNS:$site"
# What workers see. They trust this very certificate, so nobody has to sign it.
certificate cluster "DNS:manager,DNS:manager-1,DNS:manager-2,DNS:proxy,DNS:$site"
