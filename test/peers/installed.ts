/** Observers of other implementations of CoAP: where `install.sh` put them, and what they print. */
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { join } from 'node:path'
import { processEnvironment } from '#core/config/index.ts'
import { until } from '../harness/until.ts'

/** What an observer prints, a line each. `error` ends the observation; its name is the peer's. */
export type PeerEvent = {
  event: 'first' | 'message' | 'error' | 'cancelled'
  code?: string
  text?: string
  name?: string
}

type Address = { port: number; path: string; query: string }
type Command = { program: string; args: string[] }

const urlOf = ({ port, path, query }: Address) => `coap://127.0.0.1:${port}${path}?${query}`

/** The folder of `install.sh`; undefined where it was not called. */
const FOLDER = processEnvironment()['COAP_PEERS']

/** By the name of the implementation: what must be there, and how it is called. */
const PEERS: Record<string, { needs: string; command: (folder: string, address: Address) => Command }> = {
  aiocoap: {
    needs: 'python/bin/aiocoap-client',
    command: (folder, address) => ({
      program: join(folder, 'python/bin/python3'),
      args: [join(import.meta.dirname, 'python/observe.py'), urlOf(address)],
    }),
  },
  'go-coap': {
    needs: 'go-observe',
    command: (folder, { port, path, query }) => ({
      program: join(folder, 'go-observe'),
      args: [`127.0.0.1:${port}`, path, query],
    }),
  },
  Californium: {
    needs: 'java/Observe.class',
    command: (folder, address) => ({
      program: 'java',
      args: ['-cp', `${join(folder, 'java')}:${join(folder, 'java')}/*`, 'Observe', urlOf(address)],
    }),
  },
}

export const PEER_NAMES = Object.keys(PEERS)

export function isInstalled(name: string): boolean {
  const needs = PEERS[name]?.needs
  return FOLDER !== undefined && needs !== undefined && existsSync(join(FOLDER, needs))
}

export type Observer = Disposable & {
  readonly events: readonly PeerEvent[]
  /** Ends the observation as the implementation does it. */
  cancel(): Promise<void>
}

/** Starts an observer; it has been answered when this resolves. */
export async function startObserver(name: string, address: Address): Promise<Observer> {
  const peer = PEERS[name]
  if (FOLDER === undefined || peer === undefined) throw new Error(`${name} is not installed`)
  const { program, args } = peer.command(FOLDER, address)
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] })
  const events: PeerEvent[] = []
  let said = ''
  let isOver = false
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
  child.stdin.on('error', () => undefined)
  child.on('error', (error) => (said += error.message))
  child.on('close', () => (isOver = true))
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line.startsWith('{')) events.push(JSON.parse(line) as PeerEvent)
  })
  const untilTold = (event: PeerEvent['event']) =>
    until(() => {
      if (events.some((one) => one.event === event)) return true
      if (isOver) throw new Error(`${name} ended before ${event}: ${said}`)
      return false
    }, `${event} of ${name}`)
  const end = () => void child.kill('SIGKILL')
  await untilTold('first').catch((error: unknown) => {
    end()
    throw error
  })
  return {
    events,
    async cancel() {
      child.stdin.write('\n')
      await untilTold('cancelled')
    },
    [Symbol.dispose]: end,
  }
}
