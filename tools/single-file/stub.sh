#!/bin/sh
# @program@ @version@ for Linux on @platform@, in one file. This script unpacks what follows it once, and starts it.
# It needs a POSIX shell, coreutils, tar and gzip, and no network. docs/guides/edge-worker.md describes it.
program=@program@
id=@id@
platform=@platform@
payload_sha256=@payload_sha256@
payload_offset='@payload_offset@'
file_bytes='@file_bytes@'
unpacked_mib=@unpacked_mib@
fallback=@fallback@
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin

fail() {
  printf '%s: %s\n' "$program" "$1" >&2
  exit 1
}

damaged() {
  fail "$0 was cut or changed: $1. Copy the file again and compare it with SHA256SUMS"
}

# What a failed command printed, in one line.
one_line() {
  printf '%s' "$1" | tr '\n' ' '
}

choose_folder() {
  if [ -n "$SKEIN_PROGRAM_DIR" ]; then
    folder=$SKEIN_PROGRAM_DIR
    return
  fi
  # Runners have users of their own, which could not reach a folder below a closed home.
  if [ "$(id -u)" = 0 ]; then
    folder=/var/lib/skein/programs
  elif [ -n "$XDG_CACHE_HOME" ]; then
    folder=$XDG_CACHE_HOME/skein
  elif [ -n "$HOME" ]; then
    folder=$HOME/.cache/skein
  elif [ -n "$fallback" ]; then
    folder=${SKEIN_DATA_DIR:-./data}/programs
  else
    fail 'HOME is not set: set SKEIN_PROGRAM_DIR to the folder for the unpacked program'
  fi
  # A folder of another user could contain another program.
  [ ! -e "$folder" ] || [ -O "$folder" ] || fail "$folder belongs to another user: set SKEIN_PROGRAM_DIR to a folder of your own"
}

unpack() {
  for tool in sha256sum tail tar gzip tr mkdir mktemp rm; do
    command -v "$tool" >/dev/null || fail "the command $tool is missing on this machine"
  done
  found=$(tail -c "+$((payload_offset + 1))" "$0" | sha256sum)
  [ "${found%% *}" = "$payload_sha256" ] || damaged 'its SHA-256 does not match'
  umask 022
  reason=$(mkdir -p "$folder" 2>&1) && [ -w "$folder" ] ||
    fail "cannot write to $folder ($(one_line "${reason:-it is read-only}")): set SKEIN_PROGRAM_DIR to another folder"
  # Left behind by a process that was killed.
  for old in "$folder"/.draft-*; do
    pid=${old##*/.draft-}
    [ -d "/proc/${pid%%.*}" ] || rm -rf "$old"
  done
  draft=$(mktemp -d "$folder/.draft-$$.XXXXXX" 2>&1) ||
    fail "cannot write to $folder ($(one_line "$draft")): set SKEIN_PROGRAM_DIR to another folder"
  trap 'rm -rf "$draft"' EXIT
  trap 'exit 1' HUP INT TERM
  chmod 755 "$draft"
  printf '%s: unpacking version %s to %s, once\n' "$program" "@version@" "$folder" >&2
  reason=$( { tail -c "+$((payload_offset + 1))" "$0" | gzip -dc | tar -xf - --no-same-owner -C "$draft"; } 2>&1) ||
    fail "failed to unpack $unpacked_mib MiB to $folder ($(one_line "$reason")): free some space, or set SKEIN_PROGRAM_DIR to another folder"
  reason=$("$draft/node" --version 2>&1) || cannot_run "$reason"
  reason=$("$draft/node" --no-warnings "$draft/app/place.js" "$draft" "$folder/$program-$id" 2>&1) ||
    fail "failed to unpack to $folder: $(one_line "$reason")"
  trap - EXIT HUP INT TERM
}

cannot_run() {
  case $1 in
    *'shared librar'* | *GLIBC*) fail "a library is missing on this machine: $(one_line "${1#*: }"). Debian has it in libatomic1, libstdc++6 and libc6 (2.28 or later)" ;;
    *ermission\ denied*) fail "$folder does not allow programs to be executed (mount option noexec): set SKEIN_PROGRAM_DIR to another folder" ;;
    *) fail "this file is for Linux on $platform and does not run here ($(uname -sm)): $(one_line "$1")" ;;
  esac
}

bytes=$(wc -c <"$0") || fail "$0 cannot be read"
[ "$((bytes))" -eq "$((file_bytes))" ] || damaged "it has $((bytes)) bytes instead of $((file_bytes))"
choose_folder
[ -x "$folder/$program-$id/run" ] || unpack
if [ "$1" = --unpack-only ]; then
  printf '%s\n' "$folder/$program-$id"
  exit 0
fi
exec "$folder/$program-$id/run" "$@"
