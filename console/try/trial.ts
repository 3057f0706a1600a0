/** The calls of one trial, in the thread of a guest: with the engine of a worker, and with a host that sends nothing. */
import { concatenate } from '#core/bytes/index.ts'
import { MemoryState } from '#guests/calls/index.ts'
import type { Call, CallOutcome, CallReport, GuestHost, OutputName } from '#guests/calls/index.ts'
import { isCommand, isStateCall, refuseCall } from '#guests/wasm/index.ts'
import type { DescribedExport, GuestCall as HostCall, GuestReply, Json } from '#guests/wasm/index.ts'
import { MAX_OUTCOMES_BYTES } from './protocol.ts'
import type { GuestOutcome, SenmlRecord, TryReport, TryRequest } from './protocol.ts'

/** The limit of stdout and of stderr, over all calls. */
const MAX_OUTPUT_BYTES = 65_536
const MAX_PUBLICATIONS = 1_000
const MAX_MESSAGE_BYTES = 262_144
/** What WebAssembly with addresses of 32 bits can have: only the browser limits the memory of a trial. */
export const MEMORY_LIMIT_BYTES = 2 ** 32

export type Request = Omit<TryRequest, 'module' | 'tools'>

/** The function of the request, as the description of a module has it. */
export function exportsOf({ functionName, params, results }: Request): DescribedExport[] {
  return [{ name: functionName, kind: 'function', params: [...params], results: [...results] }]
}

/** Throws if the results of all calls are too large. */
export function runCalls(
  request: Request,
  run: (call: Call, host: GuestHost) => CallReport,
): Omit<TryReport, 'compileMs'> {
  const host = new TrialHost(request.records)
  const outcomes: GuestOutcome[] = []
  let memoryBytes = 0
  let bytes = 0
  for (const { inputs, stdin } of request.calls) {
    const call: Call = {
      functionName: request.functionName,
      programName: request.args[0] ?? '',
      inputs: inputs as Json[],
      args: request.args.slice(1),
      env: { ...request.env },
      stdin,
      bytesAsBase64: false,
      memoryLimitBytes: MEMORY_LIMIT_BYTES,
      maxOutputBytes: MAX_OUTPUT_BYTES,
    }
    const beganMs = performance.now()
    const report = run(call, host)
    host.state.write(report.stateEntries ?? [])
    outcomes.push({ ...shown(report.outcome, request), durationMs: performance.now() - beganMs })
    memoryBytes = Math.max(memoryBytes, report.memoryBytes)
    bytes += JSON.stringify(outcomes.at(-1)).length
    if (bytes > MAX_OUTCOMES_BYTES) throw new Error('the results are larger than 1 MiB')
  }
  return { outcomes, ...host.seen(), memoryBytes }
}

/** The output of a command is in the report. */
function shown(outcome: CallOutcome, { functionName }: Request): Omit<GuestOutcome, 'durationMs'> {
  if (outcome.state === 'failed') return { error: outcome.error }
  return { results: isCommand({ name: functionName }) ? { exit_code: 0 } : outcome.results }
}

/** Publications are listed and not sent, a read returns the records of the trial, and its calls share a state in memory. */
class TrialHost implements GuestHost {
  /** Without cross-origin isolation there is no shared memory to wait on. The thread has a deadline. */
  readonly clock = { nowNs, waitFor }
  readonly state = new MemoryState()
  readonly #records: readonly SenmlRecord[]
  readonly #publications: { topic: string; payload: string }[] = []
  readonly #reads = new Set<string>()
  readonly #written: Record<OutputName, Uint8Array[]> = { stdout: [], stderr: [] }
  readonly #bytes: Record<OutputName, number> = { stdout: 0, stderr: 0 }

  constructor(records: readonly SenmlRecord[]) {
    this.#records = records
  }

  call(call: HostCall): GuestReply {
    if (call.kind === 'publish') return this.#publish(call)
    if (call.kind === 'http') return refuseCall('forbidden', 'a trial sends no HTTP requests')
    if (isStateCall(call)) return this.state.answer(call, { hasClient: this.#records.length > 0 })
    this.#reads.add(call.topic)
    return { ok: true, records: JSON.stringify(this.#find(call)) }
  }

  wrote(output: OutputName, data: Uint8Array): void {
    const kept = data.slice(0, Math.max(0, MAX_OUTPUT_BYTES - this.#bytes[output]))
    this.#written[output].push(kept)
    this.#bytes[output] += kept.length
  }

  beforeWait(): void {}

  seen(): Pick<TryReport, 'stdout' | 'stderr' | 'publications' | 'reads' | 'state'> {
    const { stdout, stderr } = this.#written
    const text = (parts: readonly Uint8Array[]) => new TextDecoder().decode(concatenate(parts))
    return {
      stdout: text(stdout),
      stderr: text(stderr),
      publications: this.#publications,
      reads: [...this.#reads],
      state: this.state.entries,
    }
  }

  #publish({ topic, payload }: Extract<HostCall, { kind: 'publish' }>): GuestReply {
    if (new TextEncoder().encode(payload).length > MAX_MESSAGE_BYTES)
      return refuseCall('too_large', 'a message has at most 256 KiB')
    if (this.#publications.length >= MAX_PUBLICATIONS)
      return refuseCall('rate_limited', `a trial lists ${MAX_PUBLICATIONS} messages`)
    if (!isPack(payload)) return refuseCall('malformed', 'a message is a SenML pack in JSON')
    this.#publications.push({ topic, payload })
    return { ok: true, records: '' }
  }

  #find({ name, from, to, limit }: Extract<HostCall, { kind: 'read' }>): SenmlRecord[] {
    return this.#records
      .filter((record) => name === '' || record.n === name)
      .filter((record) => (from === null || record.t >= from) && (to === null || record.t < to))
      .slice(0, limit)
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

function nowNs(): bigint {
  return BigInt(Math.round(performance.now() * 1e6))
}

function waitFor(waitNs: bigint): void {
  const untilNs = nowNs() + waitNs
  while (nowNs() < untilNs);
}

export const textOf = (error: unknown) => (error instanceof Error ? error.message : String(error))
