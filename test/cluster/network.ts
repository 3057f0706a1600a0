/**
 * Where the database servers run: on loopback, or on machines of their own. A machine is a network namespace with one address, and its
 * cable can be pulled. Machines exist only inside of a network namespace of the test (`run`), so they reach nothing else, and
 * all of them end with the test.
 */
import { execFileSync, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { readFileSync, readlinkSync } from 'node:fs'
import { spawnIdentity } from '#postgres/embedded/account.ts'
import type { Account } from '#postgres/embedded/account.ts'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'

export type Ports = { peer: number; client: number; postgres: number; rest: number }

type Command = { file: string; args: string[]; identity: { uid?: number; gid?: number } }

export type Site = AsyncDisposable & {
  readonly address: string
  readonly ports: Ports
  /** A command that runs there. */
  command(file: string, args: readonly string[], account: Account): Command
  /** Nothing reaches it, and it reaches nothing, without a sign to either side. Only a machine can do it. */
  unplug(): void
  plug(): void
}

/** `host` is the address of the machine in the files of `deploy/ha/`. */
export type Network = (name: string, host: string) => Promise<Site>

export const loopback: Network = async () => {
  const [peer, client, postgres, rest] = (await freePorts(4)) as [number, number, number, number]
  const refuse = () => {
    throw new Error('loopback has no cables')
  }
  return {
    address: '127.0.0.1',
    ports: { peer, client, postgres, rest },
    command: (file, args, account) => ({ file, args: [...args], identity: spawnIdentity(account) }),
    unplug: refuse,
    plug: refuse,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  }
}

const BRIDGE = 'skein0'
/** Of this side of the bridge, in the network of `deploy/ha/`. */
const OWN_ADDRESS = '10.0.0.1/24'
/** As in the files of `deploy/ha/`. */
const PORTS: Ports = { peer: 2380, client: 2379, postgres: 5432, rest: 8008 }
const NAMESPACE_DEADLINE_MS = 5000

const ip = (...args: string[]) => execFileSync('ip', args, { stdio: 'pipe' })

/**
 * True in a network namespace that has nothing but loopback and what tests made in it. Elsewhere an address of the test could be one of
 * the network.
 */
export function hasPrivateNetwork(): boolean {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return false
  const names = [...readFileSync('/proc/net/dev', 'utf8').matchAll(/^\s*([^:\s]+):/gm)].map(([, name]) => name)
  return names.every((name) => name === 'lo' || name === BRIDGE)
}

/** Each machine is on a switch with the others and with this process. Use it in a private network only. */
export const machines: Network = async (name, host) => {
  if (!readFileSync('/proc/net/dev', 'utf8').includes(`${BRIDGE}:`)) {
    ip('link', 'add', BRIDGE, 'type', 'bridge')
    ip('address', 'add', OWN_ADDRESS, 'dev', BRIDGE)
    ip('link', 'set', BRIDGE, 'up')
  }
  // The namespace exists as long as this process, which ends with the test.
  const holder = spawn('unshare', ['--net', 'cat'], { stdio: ['pipe', 'ignore', 'inherit'] })
  const namespace = `/proc/${holder.pid}/ns/net`
  await until(
    () => readlinkSync(namespace) !== readlinkSync('/proc/self/ns/net'),
    `the network namespace of ${name}`,
    NAMESPACE_DEADLINE_MS,
  )
  const inside = (...args: string[]) => execFileSync('nsenter', [`--net=${namespace}`, ...args], { stdio: 'pipe' })
  ip('link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', String(holder.pid))
  ip('link', 'set', name, 'master', BRIDGE, 'up')
  inside('ip', 'address', 'add', `${host}/24`, 'dev', 'eth0')
  inside('ip', 'link', 'set', 'eth0', 'up')
  inside('ip', 'link', 'set', 'lo', 'up')
  return {
    address: host,
    ports: PORTS,
    command: (file, args, { uid, gid }) => ({
      file: 'nsenter',
      args: [`--net=${namespace}`, `--setuid=${uid}`, `--setgid=${gid}`, file, ...args],
      identity: {},
    }),
    // The switch takes nothing from its port and sends nothing to it.
    unplug: () => ip('link', 'set', name, 'nomaster'),
    plug: () => ip('link', 'set', name, 'master', BRIDGE),
    [Symbol.asyncDispose]: () => end(holder),
  }
}

async function end(holder: ChildProcess): Promise<void> {
  const hasEnded = new Promise((resolve) => holder.once('exit', resolve))
  holder.stdin?.end()
  await hasEnded
}
