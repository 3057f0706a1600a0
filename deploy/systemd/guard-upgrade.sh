#!/bin/sh
# Run as root by the unit of an installed worker, `before` and `after` each start (decision 0121). During an upgrade the file
# `trial` names the version before. The new version has one start to join; at the next start, whatever ended the first one, the
# version before is used again. Without an upgrade it does nothing, so that a worker without a manager keeps running.
set -u
cd /opt/skein-worker || exit 1
[ -f trial ] || exit 0

finish() {
  rm -f trial trial-started
  sync -f . 2>/dev/null || sync
}

case ${1:-} in
  before)
    read -r previous <trial || previous=
    # Interrupted before the switch.
    [ "$(readlink current)" != "versions/$previous" ] && [ "$(readlink current)" != "/opt/skein-worker/versions/$previous" ] || { finish; exit 0; }
    if [ -f trial-started ] && [ -x "versions/$previous/run" ]; then
      echo "the new version did not join: going back to $previous"
      ln -sfn "/opt/skein-worker/versions/$previous" current.back && mv -T current.back current && finish
      exit
    fi
    : >trial-started
    sync -f . 2>/dev/null || sync
    ;;
  after)
    SKEIN_DATA_DIR=/var/lib/skein-worker current/run await-join && finish
    ;;
esac
