/** `skein-worker upgrade`: replaces the installed version, and goes back to it if the new one does not join. */
import { readFile, rm, utimes } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { replaceFile } from '#core/sync-folder.ts'
import { lockFolder } from '#core/folder-lock.ts'
import { listVersions, removeOldVersions } from '#core/versions/index.ts'
import * as layout from './layout.ts'
import { verifyRelease } from './release-signature.ts'
import { runSystemCommand } from './system-command.ts'

const UNPACK_DEADLINE_MS = 600_000
/** The stop of the old version, the start of the new one with its time to join, and the same again for the way back. */
const RESTART_DEADLINE_MS = 300_000

/**
 * Prints each step before it is done. At every point at which it is interrupted, also by a power cut, the next start of the unit
 * runs the old version, or the new one that has 60 s to join (guard-upgrade.sh). Throws `forbidden` without root, `invalid_state` if nothing is
 * installed or another upgrade is under way, `unprocessable` if the file is not to be trusted, `unavailable` if the new version
 * did not join and the old one was started again.
 */
export async function upgrade(given: string, sha256: string | undefined, print: (line: string) => void): Promise<void> {
  await withInstalled('upgrade', async () => {
    const from = await recoverVersion(print)
    const file = resolve(given)
    print(`verify    ${file}`)
    const releaseKey = await readFile(join(layout.CURRENT, 'app', 'release-key.pem'), 'utf8').catch(() => undefined)
    await verifyRelease({ file, sha256, releaseKey })
    print(`unpack    to ${layout.VERSIONS}`)
    const to = await unpack(file)
    if (to === from) return print(`done      ${to} is installed already`)
    await replace(from, to, print)
    for (const removed of await removeOldVersions(join(layout.VERSIONS, to), layout.SERVICE))
      print(`removed   ${removed}`)
    print(`done      ${from} is kept as the way back`)
  })
}

/**
 * `skein-worker back`: goes back to the version before, as `upgrade` does with a file. Throws as `upgrade`, and `invalid_state`
 * if no other version is there.
 */
export async function goBack(print: (line: string) => void): Promise<void> {
  await withInstalled('back', async () => {
    const from = await recoverVersion(print)
    const others = (await listVersions(layout.VERSIONS, layout.SERVICE)).filter((name) => name !== from)
    const [to] = others
    if (to === undefined) throw new ServiceError('invalid_state', `${from} is the only version in ${layout.VERSIONS}`)
    await replace(from, to, print)
    print(`done      ${from} is kept`)
  })
}

/** Only one process at a time changes the installed version. */
async function withInstalled(command: string, change: () => Promise<void>): Promise<void> {
  layout.requireRoot(command)
  if (!(await layout.exists(layout.CURRENT)))
    throw new ServiceError(
      'invalid_state',
      'no worker is installed by skein-worker install; a Debian package is upgraded by apt or dpkg',
    )
  const lock = await lockFolder({
    path: join(layout.PROGRAM_FOLDER, 'upgrade'),
    folder: layout.PROGRAM_FOLDER,
    holder: 'another upgrade',
    advice: 'wait for its end',
  })
  try {
    await change()
  } finally {
    lock.release()
  }
}

/** The installed version that has joined: that of before an upgrade that was interrupted. */
async function recoverVersion(print: (line: string) => void): Promise<string> {
  const current = (await layout.versionAt(layout.CURRENT)) ?? ''
  const before = (await readFile(layout.TRIAL, 'utf8').catch(() => '')).trim()
  const isUsable = before !== '' && (await layout.exists(join(layout.VERSIONS, before)))
  if (!isUsable || before === current) return current
  print(`back      to ${before}: another upgrade was interrupted`)
  await layout.useVersion(before)
  return before
}

/** The file unpacks and checks itself. Returns the name of its version. */
async function unpack(file: string): Promise<string> {
  const output = await runSystemCommand(
    '/usr/bin/env',
    [`SKEIN_PROGRAM_DIR=${layout.VERSIONS}`, '/bin/sh', file, '--unpack-only'],
    UNPACK_DEADLINE_MS,
  )
  const folder = output.trim()
  if (dirname(folder) !== layout.VERSIONS || !basename(folder).startsWith(`${layout.SERVICE}-`))
    throw new ServiceError('unprocessable', `${file} is no skein-worker for this machine`)
  return basename(folder)
}

async function replace(from: string, to: string, print: (line: string) => void): Promise<void> {
  // The version that was used last is the one that is kept.
  const now = new Date()
  await utimes(join(layout.VERSIONS, from), now, now)
  print(`switch    from ${from} to ${to}`)
  await rm(layout.TRIAL_STARTED, { force: true })
  await replaceFile(layout.TRIAL, `${from}\n`, 0o644)
  await layout.useVersion(to)
  print(`restart   systemctl restart ${layout.SERVICE}, and up to 60 s for the new version to join`)
  const failure = await runSystemCommand('systemctl', ['restart', layout.SERVICE], RESTART_DEADLINE_MS).then(
    () => undefined,
    (error: unknown) => (error instanceof Error ? error.message : String(error)),
  )
  if (failure === undefined && (await layout.versionAt(layout.CURRENT)) === to && !(await layout.exists(layout.TRIAL)))
    return print('joined    the new version has joined')
  print(`back      to ${from}`)
  await layout.useVersion(from)
  for (const path of [layout.TRIAL, layout.TRIAL_STARTED]) await rm(path, { force: true })
  await runSystemCommand('systemctl', ['restart', layout.SERVICE], RESTART_DEADLINE_MS)
  throw new ServiceError(
    'unavailable',
    `${to} did not join within 60 s, and ${from} was started again: see journalctl -u ${layout.SERVICE}${failure === undefined ? '' : ` (${failure})`}`,
  )
}
