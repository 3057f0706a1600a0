/** `skein-worker install`: makes this program a service of the machine. */
import { chmod, cp, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { replaceFile } from '#core/sync-folder.ts'
import { HOME } from '#core/installation.ts'
import { placeVersion } from '#core/versions/index.ts'
import type { WorkerConfig } from '../identity/config.ts'
import { JOIN_DEADLINE_MS, awaitJoin } from './await-join.ts'
import * as layout from './layout.ts'
import { runSystemCommand } from './system-command.ts'
import { unitOf } from './unit.ts'

/** Reloading the units of a slow machine takes seconds. */
const SYSTEM_DEADLINE_MS = 120_000

/**
 * Prints each step before it is done. May be repeated, also after it was interrupted. Throws `forbidden` without root,
 * `unprocessable` outside of a single file, `invalid_state` if another version is installed, and `malformed` without a token.
 */
export async function install(config: WorkerConfig, print: (line: string) => void): Promise<void> {
  const unpacked = layout.unpackedFolder('install')
  layout.requireRoot('install')
  const name = basename(unpacked)
  const installed = await layout.versionAt(layout.CURRENT)
  if (installed !== undefined && installed !== name)
    throw new ServiceError('invalid_state', `${installed} is installed: use skein-worker upgrade FILE`)
  const token = config.token?.reveal()
  if (token === undefined && !(await layout.exists(layout.TOKEN)))
    throw new ServiceError('malformed', 'install requires a join token: --token-file names a file with it')
  await runSystemCommand('systemctl', ['--version'], SYSTEM_DEADLINE_MS)

  print(`program   ${join(layout.VERSIONS, name)}`)
  await mkdir(layout.VERSIONS, { recursive: true, mode: 0o755 })
  await copyVersion(unpacked, join(layout.VERSIONS, name))
  await replaceFile(layout.GUARD, await readFile(join(HOME, 'systemd', 'guard-upgrade.sh'), 'utf8'), 0o755)
  await layout.useVersion(name)
  print(`command   ${layout.COMMAND}`)
  await mkdir(dirname(layout.COMMAND), { recursive: true })
  await replaceFile(
    layout.COMMAND,
    `#!/bin/sh\n# Written by skein-worker install.\nSKEIN_DATA_DIR=\${SKEIN_DATA_DIR:-${layout.DATA}} exec ${layout.CURRENT}/run "$@"\n`,
    0o755,
  )
  print(`settings  ${layout.SETTINGS}`)
  await mkdir(dirname(layout.TOKEN), { recursive: true, mode: 0o755 })
  await replaceFile(layout.SETTINGS, settingsOf(config), 0o644)
  if (token !== undefined) {
    print(`token     ${layout.TOKEN}, readable by root alone`)
    await replaceFile(layout.TOKEN, `${token}\n`, 0o600)
  }
  print(`user      skein, by ${layout.USERS}`)
  await mkdir(dirname(layout.USERS), { recursive: true })
  await replaceFile(layout.USERS, await readFile(join(HOME, 'systemd', 'skein.sysusers.conf'), 'utf8'), 0o644)
  await runSystemCommand('systemd-sysusers', [layout.USERS], SYSTEM_DEADLINE_MS)
  print(`unit      ${layout.UNIT}`)
  await replaceFile(layout.UNIT, unitOf(await readFile(join(HOME, 'systemd', 'skein-worker.service'), 'utf8')), 0o644)
  for (const args of [['daemon-reload'], ['enable', layout.SERVICE], ['restart', layout.SERVICE]]) {
    print(`run       systemctl ${args.join(' ')}`)
    await runSystemCommand('systemctl', args, SYSTEM_DEADLINE_MS)
  }
  const status = await awaitJoin(join(layout.DATA, 'worker'), JOIN_DEADLINE_MS).catch((error: unknown) => {
    throw new ServiceError(
      'unavailable',
      `installed, and ${error instanceof Error ? error.message : String(error)}. It keeps trying: see journalctl -u ${layout.SERVICE}`,
      { cause: error },
    )
  })
  print(`joined    ${status.manager} as ${status.name} (${status.id}), isolation level ${status.isolation}`)
}

/** A copy of an unpacked version, complete or absent. */
async function copyVersion(from: string, target: string): Promise<void> {
  if (await layout.exists(target)) return
  // The draft is named as in the file that unpacks itself, whose next start removes drafts of processes that were killed.
  const draft = await mkdtemp(join(dirname(target), `.draft-${process.pid}.`))
  try {
    await chmod(draft, 0o755)
    // Compiled code belongs to the folder that it was compiled in.
    await cp(from, draft, { recursive: true, filter: (path) => path !== join(from, 'cache') })
    await placeVersion(draft, target)
  } finally {
    await rm(draft, { recursive: true, force: true })
  }
}

function settingsOf(config: WorkerConfig): string {
  const lines = [
    '# Settings of the worker, one NAME=value a line: docs/settings.md. After a change: systemctl restart skein-worker',
    `SKEIN_WORKER_MANAGER=${config.managers.join(',')}`,
    ...(config.name === undefined ? [] : [`SKEIN_WORKER_NAME=${config.name}`]),
  ]
  return `${lines.join('\n')}\n`
}
