#!/usr/bin/env bash
# browser_wasi_shim 0.4.2 writes the times of a file status (fd_filestat_get, path_filestat_get) at the offsets 38, 46 and 52. In the witx of
# WASI preview 1, a filestat has its times at 40, 48 and 56: a program reads each time shifted by two or four bytes, and the first one
# overwrites the upper bytes of the size. Subscription.read_bytes reads the flags of a clock at offset 36 instead of 40, so that an absolute
# timeout is taken for a relative one.
# Needs Node 20 or later and network access to npm. Exits 0 while the behaviour is as described.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund @bjorn3/browser_wasi_shim@0.4.2 >/dev/null
cat >read.mjs <<'JS'
import { wasi } from '@bjorn3/browser_wasi_shim'

const view = new DataView(new ArrayBuffer(80))
const status = new wasi.Filestat(1n, wasi.FILETYPE_REGULAR_FILE, 1000n)
status.atim = 0x1111111111111111n
status.mtim = 0x2222222222222222n
status.ctim = 0x3333333333333333n
status.write_bytes(view, 0)
for (const [field, offset] of Object.entries({ size: 32, atim: 40, mtim: 48, ctim: 56 }))
  console.log(`${field}: 0x${view.getBigUint64(offset, true).toString(16)}`)
const subscription = new DataView(new ArrayBuffer(48))
subscription.setUint16(40, wasi.SUBCLOCKFLAGS_SUBSCRIPTION_CLOCK_ABSTIME, true)
console.log(`flags of an absolute timeout: ${wasi.Subscription.read_bytes(subscription, 0).flags}`)
JS
echo "browser_wasi_shim $(node -p "require('./node_modules/@bjorn3/browser_wasi_shim/package.json').version")"
node read.mjs | tee seen
diff seen - <<'TEXT'
size: 0x11110000000003e8
atim: 0x2222111111111111
mtim: 0x3333333322222222
ctim: 0x33333333
flags of an absolute timeout: 0
TEXT
