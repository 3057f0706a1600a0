/** Converts between the manager's values and the messages of the protocol, without rules of its own. */
import { create } from '@bufbuild/protobuf'
import type { MessageInitShape } from '@bufbuild/protobuf'
import {
  FailureReason as WireReason,
  GrantKind,
  OnLost as WireOnLost,
  WireTaskState,
  AssignmentSchema,
  type HttpGrantSchema,
  type ModuleRefSchema,
  type OfflineTaskSchema,
  idOfTick,
  type RunRef,
  type RunRefSchema,
  type RunResult,
  type StateEntry as WireStateEntry,
  TASK_STATE,
} from '#proto/index.ts'
import type { WorkerMeasurements as WireMeasurements } from '#proto/index.ts'
import { bytesOf } from '#core/bytes/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { parseDurationMs } from '#core/time.ts'
import { DEFAULT_OUTPUT_BYTES, MAX_INLINE_RESULT_BYTES, MAX_RESULT_BYTES } from '../model/limits.ts'
import {
  MAX_STATE_BYTES_OF_RUN,
  MAX_STATE_KEYS_OF_RUN,
  MAX_STATE_VALUE_BYTES,
  refusalOfKey,
} from '#guests/wasm/index.ts'
import type { HttpGrant } from '../model/http-grant.ts'
import type { FailureReason, AssignedRun, RunEnding, RunIdentity, StateEntry } from '../model/run.ts'
import type { WorkerMeasured } from '../placement/metrics.ts'
import type { OfflineOffer } from '../placement/worker-session.ts'
import type { OfflineEnd } from '../store/offline-tasks.ts'
import type { OnLost } from '../model/task-fields.ts'
import { givenInline, type GivenTo } from './given-messages.ts'

const ON_LOST = {
  requeue: WireOnLost.REQUEUE,
  fail: WireOnLost.FAIL,
  wait: WireOnLost.WAIT,
} as const satisfies Record<OnLost, WireOnLost>

const REASONS = new Map<WireReason, FailureReason>([
  [WireReason.TIMEOUT, 'timeout'],
  [WireReason.OOM, 'oom'],
  [WireReason.TRAP, 'trap'],
  [WireReason.GUEST_ERROR, 'guest_error'],
  [WireReason.MODULE_INVALID, 'module_invalid'],
  [WireReason.FETCH_FAILED, 'fetch_failed'],
  [WireReason.NO_SUCH_FUNCTION, 'no_such_function'],
])

/** Processor time of one run that is counted: one year. */
const MAX_CPU_MS = 31_536_000_000
const MAX_ERROR_CHARS = 4096
const MAX_FRAMES = 20
const MAX_FRAME_CHARS = 300

export function toRef(run: RunIdentity): MessageInitShape<typeof RunRefSchema> {
  return { runId: run.id, attempt: run.attempt, fence: BigInt(run.fence) }
}

/** Throws `malformed` if the reference is missing or invalid. */
export function fromRef(run: RunRef | undefined): RunIdentity {
  if (run === undefined) throw new ServiceError('malformed', 'the message has no run reference')
  if (!isId(run.runId)) throw new ServiceError('malformed', 'the id of a run must be a UUID')
  return { id: run.runId, attempt: run.attempt, fence: Number(run.fence) }
}

export function toAssignment(
  run: AssignedRun,
  module: MessageInitShape<typeof ModuleRefSchema>,
  secrets: Readonly<Record<string, string>>,
  /** A run whose messages are stored apart requires this; the other runs have it in their spec. */
  given: GivenTo = givenInline(run.spec),
): MessageInitShape<typeof AssignmentSchema> {
  const { spec } = run
  return {
    run: toRef(run),
    taskId: spec.task_id,
    domainId: spec.domain_id ?? '',
    taskName: spec.task_name,
    module,
    function: spec.function ?? '',
    inputsJson: given.inputsJson,
    cliArgs: [...(spec.cli_args ?? [])],
    env: texts(spec.env),
    limits: {
      timeoutMs: BigInt(spec.timeout_ms),
      memoryLimitBytes: BigInt(spec.memory_limit_bytes),
      maxOutputBytes: BigInt(spec.max_output_bytes ?? DEFAULT_OUTPUT_BYTES),
      maxResultBytes: BigInt(MAX_RESULT_BYTES),
    },
    onLost: ON_LOST[spec.on_lost],
    daemon: spec.daemon === true,
    grants: (spec.grants ?? []).map((grant) => ({
      kind: grant.kind === 'publish' ? GrantKind.PUBLISH : GrantKind.READ,
      channelId: grant.channel_id,
      subtopic: grant.subtopic ?? '',
      name: grant.name ?? '',
    })),
    secrets: texts(secrets),
    triggerJson: given.triggerJson,
    traceparent: spec.traceparent ?? '',
    stdin: spec.stdin === undefined ? new Uint8Array() : bytesOf(spec.stdin),
    bytesAsBase64: spec.bytes === 'base64',
    ...(spec.http === undefined ? {} : { http: toHttpGrant(spec.http) }),
  }
}

function toHttpGrant(grant: HttpGrant): MessageInitShape<typeof HttpGrantSchema> {
  return {
    allow: grant.allow.map(({ origin, methods }) => ({ origin, methods: [...methods] })),
    maxRequests: grant.max_requests,
    maxBytes: BigInt(grant.max_bytes),
    timeoutMs: BigInt(Math.round(parseDurationMs(grant.timeout, '/http/timeout'))),
  }
}

/** The assignment of each run of an offline task. Its results come late, and are never staged. */
export function toOfflineTask(
  { version, schedule, timezone, isCaughtUp, firstTickMs, fence, run: { spec, digest } }: OfflineOffer,
  module: MessageInitShape<typeof ModuleRefSchema>,
): MessageInitShape<typeof OfflineTaskSchema> {
  const handle = { id: '', attempt: 1, fence, key: 0, taskKey: 0, drivesTask: true, parentId: null, digest, needs: '' }
  const run = { ...handle, spec, state: TASK_STATE.scheduled }
  const assignment = create(AssignmentSchema, toAssignment(run, module, {}))
  if (assignment.limits !== undefined) assignment.limits.maxResultBytes = BigInt(MAX_INLINE_RESULT_BYTES)
  return { version, assignment, schedule, timezone, catchUp: isCaughtUp, firstTickMs: BigInt(firstTickMs) }
}

/** The latest time that JavaScript and PostgreSQL know. */
const MAX_TIME_MS = 8_640_000_000_000_000n
const MAX_MISSED = 1_000_000

/** A run that its worker has started by itself. Throws `malformed` for an id that is not that of its tick. */
export function fromOfflineResult(result: RunResult): { run: RunIdentity; ending: RunEnding; end: OfflineEnd } {
  const run = fromRef(result.run)
  const { taskId, tickMs, startedMs, finishedMs, withoutSession, missed } = result.offline ?? NO_OFFLINE
  if (!isId(taskId)) throw new ServiceError('malformed', 'the task of a run must be a UUID')
  if ([tickMs, startedMs, finishedMs].some((time) => time > MAX_TIME_MS))
    throw new ServiceError('malformed', 'a time of a run is out of range')
  if (run.id !== idOfTick(taskId, BigInt(run.fence), Number(tickMs)))
    throw new ServiceError('malformed', 'the id of a run must be that of its tick')
  const told = fromResult(result)
  const isLost = result.reason === WireReason.WORKER_LOST && told.state === TASK_STATE.failed
  const ending = { ...told, staged: null, ...(isLost ? { reason: 'worker_lost' as const } : {}) }
  const { state, reason, error, frames, results, durationMs, prepareMs, outputTruncated } = ending
  const end: OfflineEnd = {
    id: run.id,
    taskId,
    fence: run.fence,
    tickMs: Number(tickMs),
    startedMs: Number(startedMs),
    finishedMs: Number(finishedMs),
    ranOffline: withoutSession,
    missed: Math.min(missed, MAX_MISSED),
    state,
    reason,
    error: error?.toWellFormed() ?? null,
    frames: frames.map((frame) => frame.toWellFormed()),
    results,
    durationMs,
    prepareMs,
    outputTruncated,
  }
  return { run, ending, end }
}

const NO_OFFLINE = { taskId: '', tickMs: 0n, startedMs: 0n, finishedMs: 0n, withoutSession: false, missed: 0 }

/**
 * Tasks from before validation can have other values, and a value that is not a string would end the session of its
 * worker.
 */
function texts(values: Readonly<Record<string, unknown>>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, String(value)]))
}

/** Throws `malformed` for an invalid state or for text that is not JSON; `too_large` for a result that must be staged. */
export function fromResult(result: RunResult): RunEnding {
  const staged =
    result.staged === undefined ? null : { digest: result.staged.digest, sizeBytes: Number(result.staged.sizeBytes) }
  return {
    ...endState(result),
    error: result.error === '' ? null : result.error.slice(0, MAX_ERROR_CHARS).replaceAll('\0', ''),
    frames: result.frames.slice(0, MAX_FRAMES).map((frame) => frame.slice(0, MAX_FRAME_CHARS).replaceAll('\0', '')),
    results: result.resultsJson === '' ? null : requireJson(result.resultsJson),
    staged,
    durationMs: Number.isFinite(result.durationMs) ? result.durationMs : null,
    prepareMs: Number.isFinite(result.prepareMs) ? result.prepareMs : null,
    cpuMs: cpuOf(result),
    outputTruncated: result.outputTruncated,
    ...(result.outputInResult ? { isOutputInResult: true } : {}),
    ...(result.stateEntries.length > 0 && result.state === WireTaskState.COMPLETED
      ? { stateEntries: fromStateEntries(result.stateEntries) }
      : {}),
  }
}

/** Throws `malformed` for a key that cannot be stored or is repeated, and `too_large`. */
function fromStateEntries(entries: readonly WireStateEntry[]): StateEntry[] {
  if (entries.length > MAX_STATE_KEYS_OF_RUN)
    throw new ServiceError('too_large', `a run can use at most ${MAX_STATE_KEYS_OF_RUN} keys of its state`)
  const seen = new Set<string>()
  let bytes = 0
  return entries.map(({ client, key, readVersion, value, deleted }) => {
    const refusal = refusalOfKey(key) ?? (client === '' ? undefined : refusalOfKey(client))
    if (refusal !== undefined) throw new ServiceError('malformed', refusal)
    const place = JSON.stringify([client, key])
    if (seen.has(place)) throw new ServiceError('malformed', 'a key of the state is repeated')
    seen.add(place)
    if (value !== undefined) bytes += Buffer.byteLength(key) + value.length
    if ((value?.length ?? 0) > MAX_STATE_VALUE_BYTES || bytes > MAX_STATE_BYTES_OF_RUN)
      throw new ServiceError(
        'too_large',
        `a run can write at most ${MAX_STATE_BYTES_OF_RUN} bytes of state, and ${MAX_STATE_VALUE_BYTES} a value`,
      )
    const version = readVersion === undefined ? undefined : Number(readVersion)
    // The message that contains the bytes can be much larger.
    return {
      client,
      key,
      readVersion: version,
      value: deleted ? null : value === undefined ? undefined : value.slice(),
    }
  })
}

/** A worker of a domain must not be able to overflow the sum of the domains. */
function cpuOf({ cpuMs, durationMs }: RunResult): number {
  const used = cpuMs ?? durationMs
  return Number.isFinite(used) && used > 0 ? Math.min(used, MAX_CPU_MS) : 0
}

function endState({ state, reason }: RunResult): Pick<RunEnding, 'state' | 'reason'> {
  switch (state) {
    case WireTaskState.COMPLETED:
      return { state: TASK_STATE.completed, reason: null }
    case WireTaskState.STOPPED:
      return { state: TASK_STATE.stopped, reason: null }
    case WireTaskState.FAILED:
      return { state: TASK_STATE.failed, reason: REASONS.get(reason) ?? 'guest_error' }
    default:
      throw new ServiceError('malformed', `state ${state} is not a final state`)
  }
}

function requireJson(text: string): string {
  if (Buffer.byteLength(text) > MAX_INLINE_RESULT_BYTES)
    throw new ServiceError('too_large', `a result of more than ${MAX_INLINE_RESULT_BYTES} bytes must be staged`)
  try {
    JSON.parse(text)
  } catch (error) {
    throw new ServiceError('malformed', 'a result is not JSON', { cause: error })
  }
  return text
}

/** Names of totals that are kept of one heartbeat. */
const MAX_KILL_REASONS = 32

export function fromMeasurements(wire: WireMeasurements): WorkerMeasured {
  return {
    residentBytes: Number(wire.residentBytes),
    runners: wire.runners,
    spooledResults: wire.spooledResults,
    spooledBytes: Number(wire.spooledBytes),
    oldestSpooledMs: Number(wire.oldestSpooledMs),
    cachedModules: wire.cachedModules,
    cachedBytes: Number(wire.cachedBytes),
    moduleHits: Number(wire.moduleHitsTotal),
    moduleFetches: Number(wire.moduleFetchesTotal),
    moduleFetchFailures: Number(wire.moduleFetchFailuresTotal),
    kills: new Map(
      Object.entries(wire.runnerKillsTotal)
        .slice(0, MAX_KILL_REASONS)
        .map(([reason, count]) => [reason, Number(count)]),
    ),
  }
}
