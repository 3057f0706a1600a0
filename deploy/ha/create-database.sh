#!/bin/sh
# Patroni calls it once, on the first primary, with the address of the new cluster. Makes the role and the database of Skein.
set -eu
: "${SKEIN_DATABASE_PASSWORD:?must be set}"
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --dbname="$1" <<'SQL'
\getenv password SKEIN_DATABASE_PASSWORD
-- Sessions that wait for a standby keep their connections. Some of max_connections remain for Patroni and pg_rewind, which bring a standby back.
CREATE ROLE skein LOGIN PASSWORD :'password' CONNECTION LIMIT 190;
CREATE DATABASE skein OWNER skein TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8';
\connect skein
CREATE EXTENSION pg_trgm;
SQL
