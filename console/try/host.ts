/**
 * What a guest may call: WASI preview 1 without files and sockets, and the functions of `skein` with grants that are assumed. A
 * publication is listed and not sent; a read returns the records of the trial.
 */
import { Fd, WASI, wasi } from '@bjorn3/browser_wasi_shim'
import type { SenmlRecord, TryReport, TryRequest } from './protocol.ts'

const MAX_OUTPUT_BYTES = 65_536
const MAX_PUBLICATIONS = 1_000
const MAX_MESSAGE_BYTES = 262_144
const MAX_READ = 1_000
/** Error codes of `skein`. */
const MALFORMED = -1
const TOO_LARGE = -4
const RATE_LIMITED = -5

type Query = { topic?: string; name?: string; from?: number; to?: number; limit?: number }
type Functions = Record<string, (...given: never[]) => unknown>

const encoder = new TextEncoder()
const decoder = new TextDecoder()

class Output extends Fd {
  readonly #parts: Uint8Array[] = []
  #bytes = 0

  override fd_write(data: Uint8Array): { ret: number; nwritten: number } {
    const kept = data.slice(0, Math.max(0, MAX_OUTPUT_BYTES - this.#bytes))
    this.#parts.push(kept)
    this.#bytes += kept.length
    return { ret: wasi.ERRNO_SUCCESS, nwritten: data.byteLength }
  }

  override fd_fdstat_get(): { ret: number; fdstat: wasi.Fdstat | null } {
    return device(wasi.RIGHTS_FD_WRITE)
  }

  text(): string {
    return this.#parts.map((part) => decoder.decode(part, { stream: true })).join('') + decoder.decode()
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
  const stdout = new Output()
  const stderr = new Output()
  const publications: { topic: string; payload: string }[] = []
  const reads = new Set<string>()
  return {
    instance(stdin) {
      const fds = [new Input(encoder.encode(stdin)), stdout, stderr]
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
          skein: messaging(bytes, records, publications, reads) as never,
        },
        bind(started) {
          const exported = started.exports['memory']
          if (exported instanceof WebAssembly.Memory) memory = exported
          shim.inst = started as unknown as typeof shim.inst
        },
      }
    },
    seen: () => ({ stdout: stdout.text(), stderr: stderr.text(), publications, reads: [...reads] }),
  }
}

function messaging(
  bytes: (at: number, length: number) => Uint8Array,
  records: readonly SenmlRecord[],
  publications: { topic: string; payload: string }[],
  reads: Set<string>,
): Functions {
  let lastError = ''
  const refuse = (code: number, message: string) => {
    lastError = message
    return code
  }
  const textAt = (at: number, length: number) => decoder.decode(bytes(at, length))
  const write = (at: number, capacity: number, text: string) => {
    const content = encoder.encode(text)
    bytes(at, capacity).set(content.subarray(0, capacity >>> 0))
    return content.length
  }
  return {
    publish(topicAt: number, topicBytes: number, payloadAt: number, payloadBytes: number) {
      if (payloadBytes >>> 0 > MAX_MESSAGE_BYTES) return refuse(TOO_LARGE, 'a message has at most 256 KiB')
      if (publications.length >= MAX_PUBLICATIONS)
        return refuse(RATE_LIMITED, `a trial lists ${MAX_PUBLICATIONS} messages`)
      const payload = textAt(payloadAt, payloadBytes)
      if (!isPack(payload)) return refuse(MALFORMED, 'a message is a SenML pack in JSON')
      publications.push({ topic: textAt(topicAt, topicBytes), payload })
      return 0
    },
    read(queryAt: number, queryBytes: number, buffer: number, capacity: number) {
      let query: Query
      try {
        query = JSON.parse(textAt(queryAt, queryBytes)) as Query
      } catch {
        return refuse(MALFORMED, 'the query is a JSON object')
      }
      const { topic = '', name, from = -Infinity, to = Infinity, limit = MAX_READ } = query
      reads.add(topic)
      const found = records
        .filter((record) => (name === undefined || record.n === name) && record.t >= from && record.t < to)
        .slice(0, Math.min(limit, MAX_READ))
      return write(buffer, capacity, JSON.stringify(found))
    },
    last_error: (buffer: number, capacity: number) => write(buffer, capacity, lastError),
  }
}

function isPack(text: string): boolean {
  try {
    const pack: unknown = JSON.parse(text)
    return Array.isArray(pack) && pack.length > 0 && pack.every((one) => typeof one === 'object' && one !== null)
  } catch {
    return false
  }
}
