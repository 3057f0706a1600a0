# One image for every program: the command says which. The default is the platform (`dist/api.js`).
#
#   docker build --build-arg COMMIT=$(git rev-parse HEAD) --build-arg BUILD_TIME=$(date -u +%Y-%m-%dT%H:%M:%SZ) -t skein .
#
# Node comes from the package that the lock file names, so that an image runs the same Node as a checkout. PostgreSQL is
# not in it: a container is given SKEIN_DATABASE_URL.

# Of the Node of this stage only npm is used.
FROM node:24-bookworm-slim AS build
# What the Node of the lock file is linked against, and this one need not be.
RUN apt-get update \
 && apt-get install -y --no-install-recommends libatomic1 \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/skein
COPY package.json package-lock.json .npmrc ./
# No install script runs: nothing that is kept needs one.
RUN npm ci --ignore-scripts \
 && install -D -m 0755 node_modules/node-linux-*/bin/node /opt/node/bin/node
COPY tsconfig.json ./
COPY migrations migrations
COPY docs/guides docs/guides
COPY core core
COPY x509 x509
COPY guests guests
COPY older older
COPY http http
COPY postgres postgres
COPY infrastructure infrastructure
COPY proto proto
COPY queues queues
COPY api api
COPY manager manager
COPY worker worker
COPY proxy proxy
COPY programs programs
COPY cli cli
COPY console console
COPY tools/build.ts tools/bundle.ts tools/
ARG COMMIT=unknown
ARG BUILD_TIME
RUN COMMIT="$COMMIT" BUILD_TIME="$BUILD_TIME" /opt/node/bin/node --disable-warning=ExperimentalWarning tools/build.ts

FROM debian:bookworm-slim
# What Node is linked against beside glibc, and the authorities that registries are trusted by.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates libatomic1 libstdc++6 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 skein \
 && useradd --uid 10001 --gid skein --home-dir /data --no-create-home --shell /usr/sbin/nologin skein \
 && install -d -o skein -g skein -m 0700 /data \
 && install -d -m 0755 /var/lib/skein
COPY --from=build /opt/node/bin/node /usr/local/bin/node
WORKDIR /opt/skein
COPY --from=build /opt/skein/dist dist
COPY LICENSE ./
COPY deploy/health.mjs deploy/
# Everything above belongs to root; the programs write below /data and /tmp alone, so the root file system may be read-only.
# A worker that runs as root, for the sake of its guests' isolation, writes below /var/lib/skein instead (docker-compose.yml).
USER skein
ENV NODE_ENV=production \
    MALLOC_ARENA_MAX=1 \
    NODE_COMPILE_CACHE=/tmp/node-compile-cache \
    SKEIN_DATA_DIR=/data \
    SKEIN_HOST=0.0.0.0
VOLUME /data
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["node", "deploy/health.mjs", "ready", "http://127.0.0.1:8080/ready"]
CMD ["node", "dist/api.js"]
