/**
 * WASI preview 1 for one run: arguments, environment, stdin, stdout, stderr, clocks and random numbers. Without files and
 * sockets nothing of the host is reachable by construction. The functions are those of @bjorn3/browser_wasi_shim, except
 * those below, which are wrong or harmful there.
 */
import { Fd, WASI, WASIProcExit, wasi } from '@bjorn3/browser_wasi_shim'
import { MESSAGING_MODULE, WASI_PREVIEW1_MODULE } from '../wasm/index.ts'
import type { DescribedImport } from '../wasm/index.ts'
import type { OutputSink, WasiOptions } from '../wasi/index.ts'

export type HostFunctions = Record<string, (...parameters: never[]) => unknown>

export type WasiHost = {
  imports: HostFunctions
  /** Must be called before the first guest call: the functions read and write the memory of this instance. */
  bind: (instance: WebAssembly.Instance) => void
  /** The memory of the bound instance. Throws if it exports none. */
  memory: () => WebAssembly.Memory
}

/** A guest that exits with a code. */
export { WASIProcExit as ProcessExit }

const encoder = new TextEncoder()

/** `filestat` of the witx. */
const FILESTAT_BYTES = 64
const FILESTAT_TYPE_OFFSET = 16
const NO_MEMORY = `the module exports no memory named "memory", in which functions of ${WASI_PREVIEW1_MODULE} and ${MESSAGING_MODULE} read and write; export its memory by this name`
const NOT_STARTED =
  'the start function of the module calls a function of the host, which cannot use the memory of the module before all of it has started; call it in _initialize or _start instead'

/**
 * The type and rights of a standard stream. Its type is unknown, as in wasmtime: it is not a terminal. C libraries have no type for a
 * stream that is not a terminal and still written line by line (decision 0137).
 */
type StreamType = { fileType: number; right: number }

/** Has no positions, as a pipe; Zig writes at a position first, and continues without one only after this error. */
class Stream extends Fd {
  readonly type: StreamType

  constructor(type: StreamType) {
    super()
    this.type = type
  }

  override fd_fdstat_get(): { ret: number; fdstat: wasi.Fdstat } {
    const fdstat = new wasi.Fdstat(this.type.fileType, 0)
    fdstat.fs_rights_base = BigInt(this.type.right)
    fdstat.fs_rights_inherited = BigInt(this.type.right)
    return { ret: wasi.ERRNO_SUCCESS, fdstat }
  }

  override fd_read(_size: number): { ret: number; data: Uint8Array } {
    return { ret: wasi.ERRNO_BADF, data: new Uint8Array() }
  }

  override fd_write(_data: Uint8Array): { ret: number; nwritten: number } {
    return { ret: wasi.ERRNO_BADF, nwritten: 0 }
  }

  override fd_pread(): { ret: number; data: Uint8Array } {
    return { ret: wasi.ERRNO_SPIPE, data: new Uint8Array() }
  }

  override fd_pwrite(): { ret: number; nwritten: number } {
    return { ret: wasi.ERRNO_SPIPE, nwritten: 0 }
  }

  override fd_seek(): { ret: number; offset: bigint } {
    return { ret: wasi.ERRNO_SPIPE, offset: 0n }
  }

  override fd_tell(): { ret: number; offset: bigint } {
    return { ret: wasi.ERRNO_SPIPE, offset: 0n }
  }
}

class Output extends Stream {
  readonly #sink: OutputSink

  constructor(sink: OutputSink, fileType: number = wasi.FILETYPE_UNKNOWN) {
    super({ fileType, right: wasi.RIGHTS_FD_WRITE })
    this.#sink = sink
  }

  override fd_write(data: Uint8Array): { ret: number; nwritten: number } {
    this.#sink.write(data)
    return { ret: wasi.ERRNO_SUCCESS, nwritten: data.byteLength }
  }
}

class Input extends Stream {
  readonly #data: Uint8Array
  #offset = 0

  constructor(data: Uint8Array) {
    super({ fileType: wasi.FILETYPE_UNKNOWN, right: wasi.RIGHTS_FD_READ })
    this.#data = data
  }

  override fd_read(size: number): { ret: number; data: Uint8Array } {
    const data = this.#data.subarray(this.#offset, this.#offset + size)
    this.#offset += data.length
    return { ret: wasi.ERRNO_SUCCESS, data }
  }
}

/** What the file of C's `stdout` refers to: a program that imports these has one. */
const C_STDIO_FUNCTIONS = ['fd_close', 'fd_fdstat_get', 'fd_seek', 'fd_write']

/**
 * True for a module with the standard output of a C library. It writes its lines at once only to a terminal, and would lose those that it
 * has not written when it traps.
 */
export function hasStdioOfC(imports: readonly DescribedImport[]): boolean {
  const names = new Set(imports.filter(({ module }) => module === WASI_PREVIEW1_MODULE).map(({ name }) => name))
  return C_STDIO_FUNCTIONS.every((name) => names.has(name))
}

/** Functions for the import object `wasi_snapshot_preview1` of one instance. `imports`: of the module. */
export function createWasiHost(options: WasiOptions, imports: readonly DescribedImport[]): WasiHost {
  const env = Object.entries(options.env).map(([name, value]) => `${name}=${value}`)
  const stdoutType = hasStdioOfC(imports) ? wasi.FILETYPE_CHARACTER_DEVICE : wasi.FILETYPE_UNKNOWN
  const fds: Stream[] = [new Input(options.stdin), new Output(options.stdout, stdoutType), new Output(options.stderr)]
  const shim = new WASI(options.args, env, fds, { debug: false })
  let memory: WebAssembly.Memory | undefined
  let isBound = false
  const boundMemory = (): WebAssembly.Memory => {
    if (memory === undefined) throw new WebAssembly.LinkError(isBound ? NO_MEMORY : NOT_STARTED)
    return memory
  }
  // The shim reads only this of an instance.
  const instance = {
    exports: {
      get memory() {
        return boundMemory()
      },
      _start: () => undefined,
    },
  }
  shim.inst = instance
  const view = () => new DataView(boundMemory().buffer)
  // The errors are those of POSIX: no descriptor of a guest is a socket.
  const notASocket = (fd: number) => (fds[fd] === undefined ? wasi.ERRNO_BADF : wasi.ERRNO_NOTSOCK)
  return {
    memory: boundMemory,
    bind(started) {
      const exported = started.exports['memory']
      if (exported instanceof WebAssembly.Memory) memory = exported
      isBound = true
    },
    imports: {
      ...shim.wasiImport,
      // The shim counts UTF-16 units, so that text beyond ASCII would overflow the guest's buffer.
      args_sizes_get(countPointer: number, sizePointer: number) {
        view().setUint32(countPointer >>> 0, options.args.length, true)
        view().setUint32(sizePointer >>> 0, sum(options.args.map((arg) => encoder.encode(arg).length + 1)), true)
        return wasi.ERRNO_SUCCESS
      },
      // The shim writes times of a file at other offsets than those of the witx.
      fd_filestat_get(fd: number, pointer: number) {
        const stream = fds[fd]
        if (stream === undefined) return wasi.ERRNO_BADF
        const bytes = new Uint8Array(FILESTAT_BYTES)
        bytes[FILESTAT_TYPE_OFFSET] = stream.type.fileType
        new Uint8Array(boundMemory().buffer, pointer >>> 0, FILESTAT_BYTES).set(bytes)
        return wasi.ERRNO_SUCCESS
      },
      // The shim reports success for clocks that it does not have.
      clock_res_get(clock: number, pointer: number) {
        const error = clockError(clock)
        return error === wasi.ERRNO_SUCCESS ? shim.wasiImport['clock_res_get']?.(clock, pointer >>> 0) : error
      },
      clock_time_get(clock: number, precision: bigint, pointer: number) {
        const error = clockError(clock)
        return error === wasi.ERRNO_SUCCESS
          ? shim.wasiImport['clock_time_get']?.(clock, precision, pointer >>> 0)
          : error
      },
      // The shim waits in a busy loop and accepts one subscription; libc's sleep needs a wait, and poll needs several.
      poll_oneoff(inPointer: number, outPointer: number, count: number, countPointer: number) {
        const poll = { inPointer: inPointer >>> 0, outPointer: outPointer >>> 0, count, countPointer }
        return pollOneoff(view(), poll, { ...options, fds })
      },
      sched_yield: () => wasi.ERRNO_SUCCESS,
      // The shim throws a string here, which would look like a failure of the host.
      proc_raise: () => wasi.ERRNO_NOTSUP,
      sock_accept: notASocket,
      sock_recv: notASocket,
      sock_send: notASocket,
      sock_shutdown: notASocket,
    },
  }
}

type Poll = { inPointer: number; outPointer: number; count: number; countPointer: number }

/** Sizes of `subscription` and `event` in WASI preview 1 (witx: 48 and 32 bytes). */
const SUBSCRIPTION_BYTES = 48
const EVENT_BYTES = 32
const MAX_SUBSCRIPTIONS = 1_000
/** The bytes that a stream is said to have; how many can be read or written is found out by doing it. */
const READY_BYTES = 1n
const NANOSECONDS_PER_MS = 1e6

type Wait = Pick<WasiOptions, 'clock' | 'beforeWait'> & { fds: readonly (Stream | undefined)[] }

/** Errors are those of wasmtime. Streams are always ready; with only clocks it waits for the earliest of them and reports it. */
function pollOneoff(view: DataView, poll: Poll, { clock, beforeWait, fds }: Wait): number {
  if (poll.count < 1 || poll.count > MAX_SUBSCRIPTIONS) return wasi.ERRNO_INVAL
  const subscriptions: { userdata: bigint; type: number; waitMs: number }[] = []
  for (let index = 0; index < poll.count; index++) {
    const at = poll.inPointer + index * SUBSCRIPTION_BYTES
    const type = view.getUint8(at + 8)
    const error = subscriptionError(view, at, type, fds)
    if (error !== wasi.ERRNO_SUCCESS) return error
    const waitMs = type === wasi.EVENTTYPE_CLOCK ? clockWaitMs(view, at) : 0
    subscriptions.push({ userdata: view.getBigUint64(at, true), type, waitMs })
  }
  const waitMs = Math.min(...subscriptions.map((subscription) => subscription.waitMs))
  if (waitMs > 0) {
    beforeWait(waitMs)
    clock.waitFor(BigInt(Math.ceil(waitMs * NANOSECONDS_PER_MS)))
  }
  const ready = subscriptions.filter((subscription) => subscription.waitMs <= waitMs)
  for (const [index, event] of ready.entries()) {
    const at = poll.outPointer + index * EVENT_BYTES
    for (let byte = 0; byte < EVENT_BYTES; byte++) view.setUint8(at + byte, 0)
    view.setBigUint64(at, event.userdata, true)
    view.setUint8(at + 10, event.type)
    if (event.type !== wasi.EVENTTYPE_CLOCK) view.setBigUint64(at + 16, READY_BYTES, true)
  }
  view.setUint32(poll.countPointer >>> 0, ready.length, true)
  return wasi.ERRNO_SUCCESS
}

function subscriptionError(view: DataView, at: number, type: number, fds: Wait['fds']): number {
  if (type > wasi.EVENTTYPE_FD_WRITE) return wasi.ERRNO_INVAL
  const target = view.getUint32(at + 16, true)
  if (type === wasi.EVENTTYPE_CLOCK)
    return clockError(target) === wasi.ERRNO_SUCCESS ? wasi.ERRNO_SUCCESS : wasi.ERRNO_INVAL
  const right = type === wasi.EVENTTYPE_FD_READ ? wasi.RIGHTS_FD_READ : wasi.RIGHTS_FD_WRITE
  return fds[target]?.type.right === right ? wasi.ERRNO_SUCCESS : wasi.ERRNO_BADF
}

/** A run has no clocks of its processor time. */
function clockError(clock: number): number {
  if (clock === wasi.CLOCKID_REALTIME || clock === wasi.CLOCKID_MONOTONIC) return wasi.ERRNO_SUCCESS
  const isOfProcessor = clock === wasi.CLOCKID_PROCESS_CPUTIME_ID || clock === wasi.CLOCKID_THREAD_CPUTIME_ID
  return isOfProcessor ? wasi.ERRNO_BADF : wasi.ERRNO_INVAL
}

function clockWaitMs(view: DataView, at: number): number {
  const clock = view.getUint32(at + 16, true)
  const timeoutNs = view.getBigUint64(at + 24, true)
  const isAbsolute = (view.getUint16(at + 40, true) & wasi.SUBCLOCKFLAGS_SUBSCRIPTION_CLOCK_ABSTIME) !== 0
  const timeoutMs = Number(timeoutNs) / NANOSECONDS_PER_MS
  if (!isAbsolute) return timeoutMs
  return Math.max(0, timeoutMs - (clock === wasi.CLOCKID_REALTIME ? Date.now() : performance.now()))
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}
