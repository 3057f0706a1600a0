/** The doors that a guest would try which broke out of its engine into the JavaScript of its process. */
import { fork, spawnSync } from 'node:child_process'
import dgram from 'node:dgram'
import { lookup } from 'node:dns'
import { appendFileSync, fstatSync, openSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import inspector from 'node:inspector'
import { createConnection, createServer } from 'node:net'
import { isMainThread } from 'node:worker_threads'

/** Where the doors lead; comes on standard input. */
export type Targets = {
  /** True: nothing isolates the probe, which is to show that the doors open then. */
  isControl?: boolean

  secretFile: string
  moduleFile: string
  /** Both from the working directory, through `..`. */
  relativeSecretFile: string
  port: number
  parentPid: number
}

export type Opened = { thread: 'main' | 'worker'; door: string; found: string }

type Door = (targets: Targets) => unknown

const isDone = (result: { error?: Error | undefined }) => {
  if (result.error !== undefined) throw result.error
  return 'started'
}

/** Each throws, or gives what it found behind the door. */
const DOORS: Record<string, Door> = {
  'a file with a secret': ({ secretFile }) => readFileSync(secretFile, 'utf8'),
  'a file with a secret, from the working directory': ({ relativeSecretFile }) =>
    readFileSync(relativeSecretFile, 'utf8'),
  "another domain's module": ({ moduleFile }) => readFileSync(moduleFile, 'utf8'),
  'a file of the system': () => readFileSync('/etc/passwd', 'utf8'),
  'a file of the system, from the working directory': () => readFileSync(`${'../'.repeat(12)}etc/passwd`, 'utf8'),
  'a file of the system, without a slash': () => readFileSync('etc/passwd', 'utf8'),
  'a list of the root': () => readdirSync('/').join(),
  'a list above the code': () => readdirSync('..').join(),
  "the worker's environment": ({ parentPid }) => readFileSync(`/proc/${parentPid}/environ`, 'latin1'),
  "the worker's command line": ({ parentPid }) => readFileSync(`/proc/${parentPid}/cmdline`, 'latin1'),
  'its own environment by /proc': () => readFileSync('/proc/self/environ', 'latin1'),
  'its memory by /proc': () => openSync('/proc/self/mem', 'r+'),
  'a file to write': () => writeFileSync('written', 'x'),
  'a file to write elsewhere': () => writeFileSync('/tmp/written-by-a-guest', 'x'),
  'its code to change': () => appendFileSync(new URL(import.meta.url).pathname, '\n'),
  'a link': () => symlinkSync('/etc/passwd', 'link'),
  'a program': () => isDone(spawnSync('/bin/true')),
  'a shell': () => isDone(spawnSync('true', { shell: true })),
  'another Node': () => fork('probe.js').pid,
  'a signal to the worker': ({ parentPid }) => process.kill(parentPid, 0),
  'an addon': () => process.dlopen({ exports: {} }, '/usr/lib/none.node'),
  'an inspector': () => {
    inspector.open(0)
    return inspector.url()
  },
  // oxlint-disable-next-line no-eval -- one of the doors
  'code from text': () => globalThis.eval('"made"') as unknown,
  'variables of the environment': () => {
    const names = Object.keys(process.env).filter((name) => name !== 'PWD')
    if (names.length === 0) throw new Error('none')
    return names.join()
  },
  'a descriptor that it was not given': () => {
    const open = Array.from({ length: 61 }, (_, at) => at + 3).filter((fd) => {
      try {
        const kind = fstatSync(fd)
        return kind.isFile() || kind.isDirectory() || kind.isSocket()
      } catch {
        return false
      }
    })
    if (open.length === 0) throw new Error('none')
    return open.join()
  },
}

/** Doors that open, or do not, some time later. */
const LATE_DOORS: Record<string, (targets: Targets) => Promise<unknown>> = {
  'a connection to this machine': ({ port }) =>
    new Promise((resolve, reject) => {
      createConnection(port, '127.0.0.1')
        .once('connect', () => resolve('connected'))
        .once('error', reject)
    }),
  'a listener': () =>
    new Promise((resolve, reject) => {
      // A refusal rises here and not as an event.
      process.once('uncaughtException', reject)
      createServer()
        .once('error', reject)
        .listen(0, '127.0.0.1', () => resolve('listens'))
    }),
  'a datagram': ({ port }) =>
    new Promise((resolve, reject) => {
      const socket = dgram.createSocket('udp4')
      socket.once('error', reject)
      socket.send('x', port, '127.0.0.1', (error) => (error ? reject(error) : resolve('sent')))
    }),
  'a name server': () =>
    new Promise((resolve, reject) => {
      lookup('localhost', (error, address) => (error ? reject(error) : resolve(address)))
    }),
  'a page': ({ port }) => fetch(`http://127.0.0.1:${port}`).then(() => 'fetched'),
}

export const NAMES_OF_DOORS: readonly string[] = [...Object.keys(DOORS), ...Object.keys(LATE_DOORS)]

export async function tryDoors(targets: Targets): Promise<Opened[]> {
  const thread = isMainThread ? 'main' : 'worker'
  const opened: Opened[] = []
  const attempt = async (door: string, open: () => unknown) => {
    try {
      opened.push({ thread, door, found: String(await open()).slice(0, 200) })
    } catch {
      // It stayed shut.
    }
  }
  for (const [door, open] of Object.entries(DOORS)) await attempt(door, () => open(targets))
  for (const [door, open] of Object.entries(LATE_DOORS)) await attempt(door, () => open(targets))
  return opened
}
