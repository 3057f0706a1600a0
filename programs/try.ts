/**
 * `skein modules try` starts it: runs a module on this machine as a worker would, and reports each round to its parent.
 * The first message of the parent is the request.
 */
import { readFile } from 'node:fs/promises'
import { resolveJsonPack } from '#api/senml.ts'
import type { TextOrBytes } from '#core/bytes/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { errorMessageOf, runUntilStopped } from '#core/program/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import { findFunction, usesState } from '#guests/wasm/index.ts'
import type { Json } from '#guests/wasm/index.ts'
import { inputsOf, requirePack, triggersOf } from '#manager/trigger-calls.ts'
import { Trials, changesOf } from '#worker/trial/index.ts'
import type { TrialCall, TrialReport, TriedModule } from '#worker/trial/index.ts'

type Request = Pick<TrialCall, 'functionName' | 'inputs' | 'args' | 'env' | 'memoryLimitBytes' | 'timeoutMs'> & {
  file: string
  stdin: TextOrBytes
  bytesAsBase64: boolean
  /** A file with a message: the module is called as a trigger calls it. */
  messageFile: string | null
  isWatching: boolean
}

/** A message as a trigger passes it to tasks. */
type Message = Parameters<typeof triggersOf>[0]

/** Runs of one message; the records after them are named in the report. */
const MAX_RUNS = 100
const NO_ID = '00000000-0000-0000-0000-000000000000'

const nowSeconds = () => Date.now() / 1000

/** A SenML pack, or a complete message with `records`. */
async function readMessage(file: string): Promise<Message> {
  const body = await readFile(file).catch((error: Error) => {
    throw new ServiceError('not_found', `cannot read ${file}: ${error.message}`)
  })
  const given = parseObject(body)
  const pack = given === undefined ? body : Buffer.from(JSON.stringify(given['records'] ?? null))
  return {
    channel_id: NO_ID,
    subtopic: '',
    publisher: NO_ID,
    protocol: 'http',
    ...given,
    records: resolveJsonPack(pack, nowSeconds()),
  }
}

function parseObject(body: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body.toString())
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined
  } catch {
    return undefined
  }
}

type PlannedCall = { inputs: Json[]; stdin: TextOrBytes; records: Message['records']; dropped?: string }

/** Plans one call if there is no message, otherwise the calls that a trigger makes of it. */
async function planCalls(request: Request, module: TriedModule): Promise<{ calls: PlannedCall[]; omitted: number }> {
  const { inputs: own, stdin, messageFile } = request
  if (messageFile === null) return { calls: [{ inputs: own, stdin, records: [] }], omitted: 0 }
  const message = await readMessage(messageFile)
  const called = findFunction(module.exports, { explicit: request.functionName, fallback: module.name })
  const triggers = triggersOf(message, called?.params, own.length)
  const calls = triggers.slice(0, MAX_RUNS).map((trigger): PlannedCall => {
    const common = { stdin: JSON.stringify(trigger), records: message.records }
    try {
      return { ...common, inputs: inputsOf(trigger, called?.params ?? [], own) }
    } catch (error) {
      return { ...common, inputs: [], dropped: errorMessageOf(error) }
    }
  })
  return { calls, omitted: triggers.length - calls.length }
}

function presentRun({ inputs, stdin }: PlannedCall, hasMessage: boolean, report: TrialReport): Record<string, unknown> {
  return {
    inputs,
    ...(hasMessage ? { stdin } : {}),
    state: report.state,
    ...(report.reason === undefined ? {} : { reason: report.reason, error: report.error, frames: report.frames }),
    results: report.results ?? null,
    stdout: report.stdout,
    stderr: report.stderr,
    output_truncated: report.isOutputTruncated,
    memory_bytes: report.memoryBytes ?? null,
    prepare_ms: report.prepareMs,
    duration_ms: report.durationMs,
    publications: report.publications,
    publications_total: report.publicationCount,
    ...(report.kept === undefined ? {} : { kept: report.kept }),
  }
}

async function tryOnce(trials: Trials, request: Request, signal: AbortSignal): Promise<Record<string, unknown>> {
  const { file, memoryLimitBytes, messageFile } = request
  const common = { file, isolation: trials.isolation, memory_limit: memoryLimitBytes }
  try {
    const module = await trials.load(file, memoryLimitBytes)
    const { kind, bytes, digest, exports, imports } = module
    const { calls, omitted } = await planCalls(request, module)
    const runs: Record<string, unknown>[] = []
    for (const call of calls) {
      if (signal.aborted) break
      runs.push(
        call.dropped === undefined
          ? presentRun(call, messageFile !== null, await trials.run(module, { ...request, ...call }, signal))
          : { state: 'dropped', error: call.dropped, stdin: call.stdin },
      )
    }
    return {
      ...common,
      module: { kind, bytes, digest, exports, imports, uses_state: usesState(imports) },
      runs,
      omitted_runs: omitted,
    }
  } catch (error) {
    return { ...common, error: errorMessageOf(error) }
  }
}

async function requestOfParent(life: Lifecycle): Promise<Request | undefined> {
  if (!process.connected) throw new ServiceError('malformed', 'skein modules try starts this program')
  process.once('disconnect', () => void life.stop())
  return await new Promise((resolve) => {
    process.once('message', (message) => resolve(message as Request))
    life.signal.addEventListener('abort', () => resolve(undefined), { once: true })
  })
}

/** Resolves when the parent has it. */
async function report(round: Record<string, unknown>): Promise<void> {
  await new Promise<void>((resolve) => process.send?.(round, () => resolve()))
}

const logger = createLogger({ name: 'try', level: 'error' })
await runUntilStopped(logger, async (life) => {
  const request = await requestOfParent(life)
  if (request === undefined) return
  const rules = {
    requirePayload: requirePack,
    requireStorable: (payload: Uint8Array) => resolveJsonPack(payload, nowSeconds()),
  }
  const trials = await life.start('trials', async () => {
    const value = await Trials.open({ rules, logger })
    return { value, stop: () => value.close() }
  })
  const files = request.messageFile === null ? [request.file] : [request.file, request.messageFile]
  const changes = await changesOf(files, life.signal)
  for (let isOver = false; !isOver;) {
    const rewritten = new AbortController()
    const changed = changes.next().finally(() => rewritten.abort())
    const round = await tryOnce(trials, request, AbortSignal.any([life.signal, rewritten.signal]))
    if (!rewritten.signal.aborted) await report(round)
    isOver = !request.isWatching || (await changed).done === true
  }
  void life.stop()
})
