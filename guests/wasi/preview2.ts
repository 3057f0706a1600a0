/**
 * WASI 0.2 for one run of a component: arguments, environment, standard streams, clocks and random numbers. Interfaces for files and the
 * network can be imported and always fail; those of HTTP are in `http.ts`. They are not from preview2-shim, whose Node form communicates with the host through a thread of
 * its own and whose browser form waits in promises (decision 0026). The interfaces have the shape that transpiled components (jco) expect:
 * camel-case names, classes for resources, thrown plain values for `err`, thrown Errors for traps. It runs on workers and in the frame of a
 * trial in a browser, so that both offer the same.
 */
import { WASI_PREVIEW2_DENIED } from '../wasm/index.ts'

/** Takes all bytes: a guest that gets "disk full" would behave differently. */
export type OutputSink = { write(data: Uint8Array): void }

export type GuestClock = {
  /** The time of a monotonic clock. */
  nowNs: () => bigint
  /** Blocks the thread; ending the thread ends the wait. */
  waitFor: (waitNs: bigint) => void
}

/** Both versions of WASI take these. */
export type WasiOptions = {
  /** The arguments with argv[0]. */
  args: string[]
  env: Record<string, string>
  stdin: Uint8Array
  stdout: OutputSink
  stderr: OutputSink
  clock: GuestClock
  /** Called before the guest waits. */
  beforeWait: (waitMs: number) => void
}

export type Interfaces = Record<string, Record<string, unknown>>

/** A component that exits with a code. */
export class ComponentExit extends Error {
  readonly code: number

  constructor(code: number) {
    super(`exit code ${code}`)
    this.code = code
  }
}

/** Limit of one write; the guest queries it before each. */
const WRITE_BYTES = 1024n * 1024n
const MAX_RANDOM_BYTES = 1024n * 1024n
/** The limit of `getRandomValues` per call. */
const RANDOM_PORTION_BYTES = 65_536

/** Throws the `err` of a function as transpiled components expect: a plain value. */
export function throwErr(err: unknown): never {
  throw err // oxlint-disable-line typescript/only-throw-error -- an Error would be a trap
}

/** Resources of guests are closed by their handles; these hold nothing to release. */
export class Resource {
  [Symbol.dispose](): void {}
}

class IoError extends Resource {
  toDebugString(): string {
    return 'input or output failed'
  }
}

type WaitClock = GuestClock & Pick<WasiOptions, 'beforeWait'>

/** Ready at a moment of the monotonic clock; streams, which have none, are always ready. */
export class Pollable extends Resource {
  readonly #readyAtNs: bigint
  readonly #clock: WaitClock | undefined

  constructor(readyAtNs = 0n, clock?: WaitClock) {
    super()
    this.#readyAtNs = readyAtNs
    this.#clock = clock
  }

  ready(): boolean {
    return this.waitNs() <= 0n
  }

  block(): void {
    const waitNs = this.waitNs()
    if (waitNs <= 0n) return
    this.#clock?.beforeWait(Number(waitNs) / 1e6)
    this.#clock?.waitFor(waitNs)
  }

  waitNs(): bigint {
    return this.#clock === undefined ? 0n : this.#readyAtNs - this.#clock.nowNs()
  }
}

export class InputStream extends Resource {
  readonly #data: Uint8Array
  #offset = 0

  constructor(data: Uint8Array) {
    super()
    this.#data = data
  }

  read(length: bigint): Uint8Array {
    if (this.#offset >= this.#data.length) return throwErr({ tag: 'closed' })
    const end = this.#offset + Number(length)
    const data = this.#data.slice(this.#offset, end)
    this.#offset += data.length
    return data
  }

  blockingRead(length: bigint): Uint8Array {
    return this.read(length)
  }

  skip(length: bigint): bigint {
    return BigInt(this.read(length).length)
  }

  blockingSkip(length: bigint): bigint {
    return this.skip(length)
  }

  subscribe(): Pollable {
    return new Pollable()
  }
}

export class OutputStream extends Resource {
  readonly #sink: OutputSink

  constructor(sink: OutputSink) {
    super()
    this.#sink = sink
  }

  checkWrite(): bigint {
    return WRITE_BYTES
  }

  write(data: Uint8Array): void {
    this.#sink.write(data)
  }

  blockingWriteAndFlush(data: Uint8Array): void {
    this.write(data)
  }

  flush(): void {}

  blockingFlush(): void {}

  subscribe(): Pollable {
    return new Pollable()
  }

  writeZeroes(length: bigint): void {
    if (length > WRITE_BYTES) throw new Error('more was written than check-write allowed')
    this.write(new Uint8Array(Number(length)))
  }

  blockingWriteZeroesAndFlush(length: bigint): void {
    this.writeZeroes(length)
  }

  splice(source: InputStream, length: bigint): bigint {
    const data = source.read(length < WRITE_BYTES ? length : WRITE_BYTES)
    this.write(data)
    return BigInt(data.length)
  }

  blockingSplice(source: InputStream, length: bigint): bigint {
    return this.splice(source, length)
  }
}

class TerminalInput extends Resource {}
class TerminalOutput extends Resource {}

/** Interfaces by name without version. */
export function createWasiPreview2(options: WasiOptions): Interfaces {
  const stdin = new InputStream(options.stdin)
  const stdout = new OutputStream(options.stdout)
  const stderr = new OutputStream(options.stderr)
  const exitWithCode = (code: number): never => {
    throw new ComponentExit(code)
  }
  return {
    'wasi:cli/environment': {
      getEnvironment: () => Object.entries(options.env),
      getArguments: () => options.args,
      initialCwd: () => undefined,
    },
    'wasi:cli/exit': { exit: (status: { tag: string }) => exitWithCode(status.tag === 'ok' ? 0 : 1), exitWithCode },
    'wasi:cli/stdin': { getStdin: () => stdin },
    'wasi:cli/stdout': { getStdout: () => stdout },
    'wasi:cli/stderr': { getStderr: () => stderr },
    'wasi:cli/terminal-input': { TerminalInput },
    'wasi:cli/terminal-output': { TerminalOutput },
    'wasi:cli/terminal-stdin': { getTerminalStdin: () => undefined },
    'wasi:cli/terminal-stdout': { getTerminalStdout: () => undefined },
    'wasi:cli/terminal-stderr': { getTerminalStderr: () => undefined },
    'wasi:clocks/monotonic-clock': monotonicClock({ ...options.clock, beforeWait: options.beforeWait }),
    'wasi:clocks/wall-clock': WALL_CLOCK,
    'wasi:io/error': { Error: IoError },
    'wasi:io/poll': { Pollable, poll },
    'wasi:io/streams': { InputStream, OutputStream },
    'wasi:random/random': { getRandomBytes, getRandomU64 },
    'wasi:random/insecure': { getInsecureRandomBytes: getRandomBytes, getInsecureRandomU64: getRandomU64 },
    'wasi:random/insecure-seed': { insecureSeed: () => [getRandomU64(), getRandomU64()] },
    'wasi:filesystem/preopens': { getDirectories: () => [] },
    'wasi:config/store': {
      get: (name: string) => (Object.hasOwn(options.env, name) ? options.env[name] : undefined),
      getAll: () => Object.entries(options.env),
    },
    ...DENIED,
  }
}

function monotonicClock(clock: WaitClock) {
  return {
    now: clock.nowNs,
    resolution: () => 1n,
    subscribeInstant: (instantNs: bigint) => new Pollable(instantNs, clock),
    subscribeDuration: (durationNs: bigint) => new Pollable(clock.nowNs() + durationNs, clock),
  }
}

const WALL_CLOCK = {
  now() {
    const nowMs = Date.now()
    return { seconds: BigInt(Math.floor(nowMs / 1_000)), nanoseconds: (nowMs % 1_000) * 1e6 }
  },
  resolution: () => ({ seconds: 0n, nanoseconds: 1e6 }),
}

/** Indices of the ready pollables; waits for the first if none is ready. */
function poll(pollables: Pollable[]): Uint32Array {
  const [first, ...others] = pollables
  if (first === undefined) throw new Error('the list of pollables must not be empty')
  others.reduce((earliest, other) => (other.waitNs() < earliest.waitNs() ? other : earliest), first).block()
  const ready = [...pollables.entries()].filter(([, pollable]) => pollable.ready()).map(([index]) => index)
  return Uint32Array.from(ready)
}

function getRandomBytes(length: bigint): Uint8Array {
  if (length > MAX_RANDOM_BYTES) throw new Error(`at most ${MAX_RANDOM_BYTES} random bytes can be requested at once`)
  const bytes = new Uint8Array(Number(length))
  for (let at = 0; at < bytes.length; at += RANDOM_PORTION_BYTES) {
    crypto.getRandomValues(bytes.subarray(at, at + RANDOM_PORTION_BYTES))
  }
  return bytes
}

function getRandomU64(): bigint {
  return crypto.getRandomValues(new BigUint64Array(1))[0] ?? 0n
}

/** Creating a socket fails with an ordinary error that programs handle. */
const denySocket = () => throwErr('access-denied')

class Network extends Resource {}

/** Denied interfaces that still have functions. Errors of files are queried after any failed stream. */
const HARMLESS: Interfaces = {
  'wasi:filesystem/types': { filesystemErrorCode: () => undefined },
  'wasi:sockets/instance-network': { instanceNetwork: () => new Network() },
  'wasi:sockets/network': { Network },
  'wasi:sockets/tcp-create-socket': { createTcpSocket: denySocket },
  'wasi:sockets/udp-create-socket': { createUdpSocket: denySocket },
  'wasi:sockets/ip-name-lookup': { resolveAddresses: denySocket },
}

const DENIED: Interfaces = Object.fromEntries(
  WASI_PREVIEW2_DENIED.map((name) => [name, denyEverything(name, HARMLESS[name] ?? {})]),
)

/** Functions and resources of any name, which trap when they are used. */
export function denyEverything(name: string, offered: Record<string, unknown>): Record<string, unknown> {
  const denied = new Map<string, unknown>(Object.entries(offered))
  return new Proxy(offered, {
    get(_, property) {
      if (typeof property !== 'string') return undefined
      let value = denied.get(property)
      if (value === undefined) {
        value = deny(`${name}: ${property} is not granted to this task`)
        denied.set(property, value)
      }
      return value
    },
  })
}

/** Works as a function, as a class, and as the prototype of one: components access them when they start. */
function deny(message: string): unknown {
  const refuse = function refuse(): never {
    throw new Error(message)
  }
  refuse.prototype = new Proxy({}, { get: () => refuse })
  return refuse
}
