/** The brokers that a bench compares, each a process of its own on a port of its own. */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export const BROKERS = ['skein', 'mosquitto', 'aedes'] as const
export type BrokerName = (typeof BROKERS)[number]

export type Broker = AsyncDisposable & {
  readonly port: number
  rssKib(): number
  /** CPU time since its start, in user and kernel mode. */
  cpuMs(): number
}

const MOSQUITTO = '/usr/sbin/mosquitto'
const READY_DEADLINE_MS = 20_000
/** The kernel counts the CPU time of processes in hundredths of a second. */
const TICK_MS = 10

export const hasBroker = (name: BrokerName): boolean => name !== 'mosquitto' || existsSync(MOSQUITTO)

export async function startBroker(name: BrokerName, port: number): Promise<Broker> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-bench-mqtt-'))
  const config = join(folder, 'mosquitto.conf')
  writeFileSync(
    config,
    [
      `listener ${port} 127.0.0.1`,
      'allow_anonymous true',
      'persistence false',
      // The limit of the other brokers, so that all do the same work.
      'max_inflight_messages 1000',
      'max_queued_messages 100000',
      'set_tcp_nodelay true',
      'log_type none',
    ].join('\n'),
  )
  const [file, args] =
    name === 'mosquitto'
      ? [MOSQUITTO, ['-c', config]]
      : [
          process.execPath,
          [join(import.meta.dirname, name === 'skein' ? 'conformance-broker.ts' : 'aedes-broker.ts'), `${port}`],
        ]
  const pinned = existsSync('/usr/bin/taskset') ? ['/usr/bin/taskset', '-c', '0,1', file, ...args] : [file, ...args]
  const child = spawn(pinned[0] as string, pinned.slice(1), { stdio: ['ignore', 'ignore', 'inherit'] })
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  await untilOpen(port)
  return {
    port,
    rssKib: () => Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1] ?? 0),
    cpuMs() {
      const fields = readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
      return (Number(fields[11]) + Number(fields[12])) * TICK_MS
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM')
      await ended
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

async function untilOpen(port: number): Promise<void> {
  for (const end = performance.now() + READY_DEADLINE_MS; performance.now() < end;) {
    const isOpen = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1')
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
      socket.once('connect', () => socket.destroy())
    })
    if (isOpen) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`no broker on port ${port}`)
}
