#!/bin/sh
# Starts @program@ with the Node and the flags that it was built for (decisions 0096 and 0121).
here=$(CDPATH='' cd -P -- "${0%/*}" && pwd -P) || exit 1
MALLOC_ARENA_MAX=1 NODE_COMPILE_CACHE=${NODE_COMPILE_CACHE:-$here/cache} exec "$here/node" --max-semi-space-size=16 --heap-growing-percent=50 --no-allocation-site-pretenuring --disable-warning=ExperimentalWarning "$here/app/@entry@.js" "$@"
