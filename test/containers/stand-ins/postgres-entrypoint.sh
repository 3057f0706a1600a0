#!/bin/bash
# What the entry point of the published image of PostgreSQL does with the settings of docker-compose.yml, as a user without rights.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  mkdir -p "$PGDATA"
  chmod 700 "$PGDATA" || :
  eval 'initdb --username="$POSTGRES_USER" --pwfile=<(printf "%s\n" "$POSTGRES_PASSWORD") '"$POSTGRES_INITDB_ARGS"
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
  # On a socket alone, until everything is there; the programs that wait for TCP wait for the end of it.
  [ "$POSTGRES_DB" = postgres ] || echo "CREATE DATABASE \"$POSTGRES_DB\";" | postgres --single -D "$PGDATA" postgres
fi
exec "$@"
