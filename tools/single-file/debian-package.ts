/** Makes a Debian package of a staged program, with the same files as the single file. Needs dpkg-deb. */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { packageUnitOf } from '#worker/installation/unit.ts'
import { bytesBelow } from './single-file.ts'
import type { Contents, Platform, Program } from './single-file.ts'

const ROOT = join(import.meta.dirname, '..', '..')
export const DEBIAN_ARCHITECTURES: Readonly<Record<Platform, string>> = { 'linux-x64': 'amd64', 'linux-arm64': 'arm64' }

/** The packages of Debian 10 and later that have what Node is linked against (`readelf --dynamic`). */
const DEPENDS = 'libc6 (>= 2.28), libgcc-s1 | libgcc1, libstdc++6, libatomic1'

/** Starts the service only where it was configured: a new worker needs a manager and a token. */
const POSTINST = `#!/bin/sh
set -e
if [ "$1" = configure ]; then
  systemd-sysusers /usr/lib/sysusers.d/skein.conf
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    [ -z "$2" ] || systemctl try-restart skein-worker.service
  fi
fi
`
const PRERM = `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now skein-worker.service; fi
`

/** Its folder in the package. */
const homeOf = (program: Program) => `/usr/lib/${program.name}`

export function writeDebianPackage(program: Program, platform: Platform, contents: Contents, file: string): void {
  const { staging, version, builtAt } = contents
  const root = `${staging}.deb`
  const put = (path: string, text: string, mode = 0o644) => {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text, { mode })
  }
  cpSync(staging, join(root, homeOf(program)), { recursive: true })
  for (const [from, to] of Object.entries(program.installs)) {
    mkdirSync(dirname(join(root, to)), { recursive: true })
    cpSync(join(ROOT, from), join(root, to))
  }
  const isService = program.units.length > 0
  const data = isService ? 'SKEIN_DATA_DIR=${SKEIN_DATA_DIR:-/var/lib/skein-worker} ' : ''
  put(`usr/bin/${program.name}`, `#!/bin/sh\n${data}exec ${homeOf(program)}/run "$@"\n`, 0o755)
  const control = [
    `Package: ${program.name}`,
    `Version: ${version}`,
    `Architecture: ${DEBIAN_ARCHITECTURES[platform]}`,
    'Maintainer: Skein <skein@localhost>',
    'Section: net',
    'Priority: optional',
    `Installed-Size: ${Math.ceil(bytesBelow(root) / 1024)}`,
    `Depends: ${DEPENDS}${isService ? ', systemd' : ''}`,
    ...(isService ? ['Recommends: bubblewrap'] : []),
    `Description: ${program.summary}`,
    '',
  ]
  if (isService) {
    const unit = readFileSync(join(ROOT, 'deploy/systemd/skein-worker.service'), 'utf8')
    put('usr/lib/systemd/system/skein-worker.service', packageUnitOf(unit, homeOf(program)))
    cpSync(join(ROOT, 'deploy/systemd/skein.sysusers.conf'), join(root, 'usr/lib/sysusers.d/skein.conf'), {
      recursive: true,
    })
    put('DEBIAN/postinst', POSTINST, 0o755)
    put('DEBIAN/prerm', PRERM, 0o755)
  }
  put('DEBIAN/control', control.join('\n'))
  const seconds = String(Math.floor(Date.parse(builtAt) / 1000))
  execFileSync('dpkg-deb', ['--root-owner-group', '-Zxz', '-z1', '--build', root, file], {
    env: { ...process.env, SOURCE_DATE_EPOCH: seconds },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
}
