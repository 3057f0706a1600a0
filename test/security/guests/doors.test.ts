/**
 * What a guest reaches that broke out into JavaScript (task-manager.md section 4): at each level of isolation, from the main
 * thread of its process and from another, as root and as an ordinary user.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ISOLATION_LEVELS, stageCode } from '#worker/isolation/index.ts'
import type { IsolationLevel } from '#worker/isolation/index.ts'
import { reachableBinary } from '#worker/isolation/reachable-folder.ts'
import { NAMES_OF_DOORS } from './doors.ts'
import type { Opened, Targets } from './doors.ts'

const NOBODY = 65_534
const PROBE = 'test/security/guests/probe.js'
const isRoot = process.getuid?.() === 0
const isInCi = process.env['CI'] === 'true'

let folder: string
let program: string
let probeFolder: string
let node: string

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-doors-'))
  chmodSync(folder, 0o755)
  const staged = (entry: string) => stageCode(join(folder, 'code'), { entries: [entry], packages: [] })
  probeFolder = await staged('test/security/guests/probe.ts')
  program = join(await staged('test/security/guests/try-doors.ts'), 'test/security/guests/try-doors.js')
  // A copy for the ordinary user, who may not reach where this checkout lies.
  node = isRoot ? await reachableBinary(folder) : process.execPath
})
afterAll(() => rmSync(folder, { recursive: true }))

async function tryDoors(level: IsolationLevel, uid: number | undefined): Promise<Opened[]> {
  const work = mkdtempSync(join(folder, 'work-'))
  chmodSync(work, 0o755)
  // The folder of the worker belongs to the user that it runs as.
  if (uid !== undefined) chownSync(work, uid, uid)
  const child = spawn(node, [program, level, probeFolder, work], {
    env: { PATH: process.env['PATH'], SECRET_OF_THE_WORKER: 'in the environment' },
    cwd: work,
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(uid === undefined ? {} : { uid, gid: uid }),
  })
  const [output, complaints] = await Promise.all([text(child.stdout), text(child.stderr)])
  if (output === '') throw new Error(complaints)
  const answer = JSON.parse(output) as { level: string; opened: string; complaints: string }
  expect(answer.level).toBe(level)
  expect(answer.complaints).toBe('')
  return JSON.parse(answer.opened) as Opened[]
}

/** A level that this machine does not have is left out by name where a user runs the tests. */
const who = [
  ...ISOLATION_LEVELS.map((level) => ({ who: isRoot ? 'root' : 'this user', uid: undefined, level })),
  ...(isRoot ? ISOLATION_LEVELS.map((level) => ({ who: 'an ordinary user', uid: NOBODY, level })) : []),
].filter(({ who: name, level }) => level !== 'uid' || name === 'root')

describe('a guest that escaped its engine', () => {
  test.each(who)('reaches nothing at level $level as $who', async ({ level, uid }) => {
    let opened: Opened[]
    try {
      opened = await tryDoors(level, uid)
    } catch (error) {
      if (isInCi || !(error as Error).message.includes('SKEIN_WORKER_ISOLATION')) throw error
      console.log(`left out: level ${level} does not work on this machine`)
      return
    }
    // Only the kernel keeps processes of one user from signalling each other: level process says so in docs/security.md.
    const allowed = level === 'process' ? ['a signal to the worker'] : []
    expect(opened.filter(({ door }) => !allowed.includes(door))).toEqual([])
  })
})

test('the probe succeeds without isolation', async () => {
  const work = mkdtempSync(join(folder, 'open-'))
  const secretFile = join(work, 'secret')
  writeFileSync(secretFile, 'x')
  await using listener = createServer((socket) =>
    socket
      .on('error', () => undefined)
      .resume()
      .end('HTTP/1.0 200 OK\r\n\r\n'),
  ).listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const child = spawn(node, [join(probeFolder, PROBE)], { cwd: work, env: { SECRET: 'x' } })
  const targets: Targets = {
    isControl: true,
    secretFile,
    moduleFile: secretFile,
    relativeSecretFile: 'secret',
    port: (listener.address() as AddressInfo).port,
    parentPid: process.pid,
  }
  child.stdin.end(JSON.stringify(targets))
  const opened = JSON.parse(await text(child.stdout)) as Opened[]
  const doors = new Set(opened.map(({ door }) => door))
  const shut = NAMES_OF_DOORS.filter((door) => !doors.has(door))
  expect(shut).toEqual(['a file of the system, without a slash', 'an addon'])
})
