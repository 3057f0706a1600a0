/**
 * WASI preview 1 for one run: arguments, environment, stdin, stdout, stderr, clocks and random numbers. Without files and
 * sockets nothing of the host is reachable by construction. The functions are those of @bjorn3/browser_wasi_shim, except
 * those below, which are wrong or harmful there.
 */
import { Fd, WASI, WASIProcExit, wasi } from '@bjorn3/browser_wasi_shim'
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

/** Has no positions, as a pipe; Zig writes at a position first, and continues without one only after this error. */
class Stream extends Fd {
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

  constructor(sink: OutputSink) {
    super()
    this.#sink = sink
  }

  override fd_write(data: Uint8Array): { ret: number; nwritten: number } {
    this.#sink.write(data)
    return { ret: wasi.ERRNO_SUCCESS, nwritten: data.byteLength }
  }

  override fd_fdstat_get(): { ret: number; fdstat: wasi.Fdstat | null } {
    return characterDevice(wasi.RIGHTS_FD_WRITE)
  }
}

class Input extends Stream {
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
    return characterDevice(wasi.RIGHTS_FD_READ)
  }
}

function characterDevice(rights: number): { ret: number; fdstat: wasi.Fdstat } {
  const fdstat = new wasi.Fdstat(wasi.FILETYPE_CHARACTER_DEVICE, 0)
  fdstat.fs_rights_base = BigInt(rights)
  return { ret: wasi.ERRNO_SUCCESS, fdstat }
}

/** Functions for the import object `wasi_snapshot_preview1` of one instance. */
export function createWasiHost(options: WasiOptions): WasiHost {
  const env = Object.entries(options.env).map(([name, value]) => `${name}=${value}`)
  const fds = [new Input(options.stdin), new Output(options.stdout), new Output(options.stderr)]
  const shim = new WASI(options.args, env, fds, { debug: false })
  let memory: WebAssembly.Memory | undefined
  const boundMemory = (): WebAssembly.Memory => {
    if (memory === undefined) throw new TypeError('the module exports no memory')
    return memory
  }
  const view = () => new DataView(boundMemory().buffer)
  // The errors are those of POSIX: no descriptor of a guest is a socket.
  const notASocket = (fd: number) => (fd in fds ? wasi.ERRNO_NOTSOCK : wasi.ERRNO_BADF)
  return {
    memory: boundMemory,
    bind(started) {
      const exported = started.exports['memory']
      if (exported instanceof WebAssembly.Memory) memory = exported
      // The shim's own `start` requires `_start`; its functions only need the instance.
      shim.inst = started as unknown as typeof shim.inst
    },
    imports: {
      ...shim.wasiImport,
      // The shim counts UTF-16 units, so that text beyond ASCII would overflow the guest's buffer.
      args_sizes_get(countPointer: number, sizePointer: number) {
        view().setUint32(countPointer >>> 0, options.args.length, true)
        view().setUint32(sizePointer >>> 0, sum(options.args.map((arg) => encoder.encode(arg).length + 1)), true)
        return wasi.ERRNO_SUCCESS
      },
      // The shim waits in a busy loop and accepts one subscription; libc's sleep needs a wait, and poll needs several.
      poll_oneoff(inPointer: number, outPointer: number, count: number, countPointer: number) {
        const poll = { inPointer: inPointer >>> 0, outPointer: outPointer >>> 0, count, countPointer }
        return pollOneoff(view(), poll, options)
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
const NANOSECONDS_PER_MS = 1e6

type Wait = Pick<WasiOptions, 'clock' | 'beforeWait'>

/** Files are always ready; with only clocks it waits for the earliest of them and reports it. */
function pollOneoff(view: DataView, poll: Poll, { clock, beforeWait }: Wait): number {
  if (poll.count < 1 || poll.count > MAX_SUBSCRIPTIONS) return wasi.ERRNO_INVAL
  const subscriptions = Array.from({ length: poll.count }, (_, index) => {
    const at = poll.inPointer + index * SUBSCRIPTION_BYTES
    const type = view.getUint8(at + 8)
    const isClock = type === wasi.EVENTTYPE_CLOCK
    return { userdata: view.getBigUint64(at, true), type, waitMs: isClock ? clockWaitMs(view, at) : 0 }
  })
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
  }
  view.setUint32(poll.countPointer >>> 0, ready.length, true)
  return wasi.ERRNO_SUCCESS
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
