/**
 * What a core module may call: WASI preview 1 without files and sockets, and the functions of `skein` with grants that are
 * assumed.
 */
import { Fd, WASI, wasi } from '@bjorn3/browser_wasi_shim'
import { GuestOutput, createMessaging } from './messaging.ts'
import type { Messaging, Query, Refusal } from './messaging.ts'
import type { TryReport, TryRequest } from './protocol.ts'

/** Error codes of `skein`. */
const CODES: Readonly<Record<Refusal['kind'], number>> = { malformed: -1, too_large: -4, rate_limited: -5 }

type Functions = Record<string, (...given: never[]) => unknown>

const encoder = new TextEncoder()
const decoder = new TextDecoder()

class Output extends Fd {
  readonly #output: GuestOutput

  constructor(output: GuestOutput) {
    super()
    this.#output = output
  }

  override fd_write(data: Uint8Array): { ret: number; nwritten: number } {
    this.#output.write(data)
    return { ret: wasi.ERRNO_SUCCESS, nwritten: data.byteLength }
  }

  override fd_fdstat_get(): { ret: number; fdstat: wasi.Fdstat | null } {
    return device(wasi.RIGHTS_FD_WRITE)
  }
}

class Input extends Fd {
  readonly #data: Uint8Array
  #offset = 0

  constructor(data: Uint8Array) {
    super()
    this.#data = data
  }

  override fd_read(size: number): { ret: number; data: Uint8Array } {
    const data = this.#data.subarray(this.#offset, this.#offset + size)
    this.#offset += data.length
    return { ret: wasi.ERRNO_SUCCESS, data }
  }

  override fd_fdstat_get(): { ret: number; fdstat: wasi.Fdstat | null } {
    return device(wasi.RIGHTS_FD_READ)
  }
}

function device(rights: number): { ret: number; fdstat: wasi.Fdstat } {
  const fdstat = new wasi.Fdstat(wasi.FILETYPE_CHARACTER_DEVICE, 0)
  fdstat.fs_rights_base = BigInt(rights)
  return { ret: wasi.ERRNO_SUCCESS, fdstat }
}

export type Host = {
  /** The imports of one instance, which must be bound before its first call. */
  instance(stdin: string): { imports: WebAssembly.Imports; bind: (instance: WebAssembly.Instance) => void }
  seen(): Pick<TryReport, 'stdout' | 'stderr' | 'publications' | 'reads'>
}

export function createHost({ args, env, records }: Pick<TryRequest, 'args' | 'env' | 'records'>): Host {
  const stdout = new GuestOutput()
  const stderr = new GuestOutput()
  const messaging = createMessaging(records)
  return {
    instance(stdin) {
      const fds = [new Input(encoder.encode(stdin)), new Output(stdout), new Output(stderr)]
      const pairs = Object.entries(env).map(([name, value]) => `${name}=${value}`)
      const shim = new WASI([...args], pairs, fds, { debug: false })
      let memory: WebAssembly.Memory | undefined
      const bytes = (at: number, length: number) => {
        if (memory === undefined) throw new TypeError('the module exports no memory')
        return new Uint8Array(memory.buffer, at >>> 0, length >>> 0)
      }
      return {
        imports: {
          wasi_snapshot_preview1: { ...shim.wasiImport, proc_raise: () => wasi.ERRNO_NOTSUP } as never,
          skein: functionsOf(bytes, messaging) as never,
        },
        bind(started) {
          const exported = started.exports['memory']
          if (exported instanceof WebAssembly.Memory) memory = exported
          shim.inst = started as unknown as typeof shim.inst
        },
      }
    },
    seen: () => ({ stdout: stdout.text(), stderr: stderr.text(), ...messaging.seen() }),
  }
}

function functionsOf(bytes: (at: number, length: number) => Uint8Array, messaging: Messaging): Functions {
  let lastError = ''
  const refuse = ({ kind, message }: Refusal) => {
    lastError = message
    return CODES[kind]
  }
  const textAt = (at: number, length: number) => decoder.decode(bytes(at, length))
  const write = (at: number, capacity: number, text: string) => {
    const content = encoder.encode(text)
    bytes(at, capacity).set(content.subarray(0, capacity >>> 0))
    return content.length
  }
  return {
    publish(topicAt: number, topicBytes: number, payloadAt: number, payloadBytes: number) {
      const refusal = messaging.publish(textAt(topicAt, topicBytes), textAt(payloadAt, payloadBytes))
      return refusal === undefined ? 0 : refuse(refusal)
    },
    read(queryAt: number, queryBytes: number, buffer: number, capacity: number) {
      let query: Query
      try {
        query = JSON.parse(textAt(queryAt, queryBytes)) as Query
      } catch {
        return refuse({ kind: 'malformed', message: 'the query is a JSON object' })
      }
      const found = messaging.read(query)
      return typeof found === 'string' ? write(buffer, capacity, found) : refuse(found)
    },
    last_error: (buffer: number, capacity: number) => write(buffer, capacity, lastError),
  }
}
