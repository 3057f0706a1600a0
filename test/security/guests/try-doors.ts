/**
 * Starts the probe as a runner would be started, at one level and as the user who runs this, and prints which accesses succeeded. A
 * program of its own, because the user of a process is the user of all that it starts.
 *
 *   node try-doors.js LEVEL PROBE_FOLDER WORK_FOLDER
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { join, relative } from 'node:path'
import { text } from 'node:stream/consumers'
import { IsolatedProcess, establishIsolation } from '#worker/isolation/index.ts'
import type { IsolationLevel } from '#worker/isolation/index.ts'
import type { Targets } from './doors.ts'

const [level = '', probeFolder = '', workFolder = ''] = process.argv.slice(2)
const isolation = await establishIsolation({
  required: level as IsolationLevel,
  strongest: level as IsolationLevel,
  folder: workFolder,
})

// Files beside a worker: the secret key of a platform, and a module of another user in a folder that others cannot read.
const secretFile = join(workFolder, 'secret.key')
writeFileSync(secretFile, 'the secret key', { mode: 0o600 })
mkdirSync(join(workFolder, 'modules'), { recursive: true, mode: 0o700 })
const moduleFile = join(workFolder, 'modules', 'other.wasm')
writeFileSync(moduleFile, 'the module of another domain', { mode: 0o600 })

const listener = createServer((socket) => socket.end()).listen(0, '127.0.0.1')
await new Promise((resolve) => listener.once('listening', resolve))

const isolated = new IsolatedProcess(isolation, {
  codeFolder: probeFolder,
  entry: join(probeFolder, 'test/security/guests/probe.js'),
  user: 0,
  maxHeapMib: 64,
  flags: ['--allow-worker'],
})
const targets: Targets = {
  secretFile,
  moduleFile,
  relativeSecretFile: relative(probeFolder, secretFile),
  port: (listener.address() as AddressInfo).port,
  parentPid: process.pid,
}
isolated.child.stdin.end(JSON.stringify(targets))
const [opened, complaints] = await Promise.all([text(isolated.child.stdout), text(isolated.child.stderr)])
listener.close()
process.stdout.write(JSON.stringify({ level: isolation.level, opened, complaints }))
