/** The plan of a start: validation and spec, computed from the task and its module. */
import { ServiceError } from '#core/errors/index.ts'
import {
  COMMAND_FUNCTION,
  findFunction,
  formatType,
  isCallableFromJson,
  parseInputs,
  usesState,
} from '#guests/wasm/index.ts'
import type { DescribedExport } from '#guests/wasm/index.ts'
import { MAX_BATCH_SPEC_CHARS, MAX_UNREQUESTED_SPEC_CHARS, MAX_SPEC_BYTES } from '../model/limits.ts'
import { memoryClassBytes, requiredRuntime } from '../model/needs.ts'
import type { Cluster } from '../placement/cluster.ts'
import type { RunNeeds } from '../model/needs.ts'
import type { RunSpec, StoredGiven } from '../model/run.ts'
import { UnresolvedImage, type ResolvedImage, type StartRequest } from '../model/start.ts'
import { specOf, type RunInput } from '../model/task-fields.ts'
import { inputsOf } from '../model/trigger-message.ts'
import type { ContentRef, GivenMessages, TriggerMessage } from '#queues/index.ts'
import type { ModuleFacts } from '../store/catalogue.ts'
import type { StartTask } from './known-tasks.ts'

/** The common part of all starts of a task. */
export type Plan = {
  digest: string
  /** The called function; undefined if the module was not read yet. */
  called: DescribedExport | undefined
  spec: RunSpec
  needs: RunNeeds
  needsHash: string
}

/**
 * Throws `unprocessable` if the task has no module or the module lacks the function, `UnresolvedImage` for the
 * reference of the task, and the error of the resolution.
 */
function planOf(
  request: StartRequest,
  task: StartTask,
  modules: ReadonlyMap<number, ModuleFacts>,
  /** Stores the needs and returns their hash. */
  storeNeeds: (needs: RunNeeds) => string,
): Plan {
  const module = task.module_key === null ? undefined : modules.get(task.module_key)
  const source = task.image_url === null ? module : imageOf(request, task.image_url)
  if (source === undefined) {
    throw new ServiceError('unprocessable', 'the task has no module: upload one or set image_url')
  }
  const needs: RunNeeds = {
    domainId: task.domain_id,
    workerId: task.worker_id,
    labels: task.labels,
    runtime: requiredRuntime(module, task.http),
    memoryBytes: memoryClassBytes(task.memory_limit_bytes),
  }
  const called = module === undefined ? undefined : requireFunction(module, task)
  return {
    digest: source.digest,
    called,
    spec: {
      task_id: task.id,
      task_name: task.name,
      domain_id: task.domain_id,
      module_bytes: source.sizeBytes,
      module_reference: 'reference' in source ? source.reference : null,
      ...('notes' in source && source.notes.length > 0 ? { module_notes: source.notes } : {}),
      ...(task.function === null && called !== undefined ? { called: called.name } : {}),
      ...specOf(task),
      ...specExtras(task),
      ...(module !== undefined && usesState(module.imports) ? { uses_state: true as const } : {}),
    },
    needs,
    needsHash: storeNeeds(needs),
  }
}

function imageOf({ image }: StartRequest, reference: string): ResolvedImage {
  if (image instanceof Error) throw image
  if (image?.imageUrl === reference) return image
  throw new UnresolvedImage(reference)
}

/** Plans of tasks, as long as the tasks are cached. */
const known = new WeakMap<StartTask, Plan>()

/** The plan of `planOf`, which is kept with the task; an image is resolved per request. The cluster knows its needs. */
export function planFor(
  request: StartRequest,
  task: StartTask,
  modules: ReadonlyMap<number, ModuleFacts>,
  cluster: Pick<Cluster, 'knowsNeeds' | 'storeNeeds'>,
): Plan {
  const kept = known.get(task)
  if (kept !== undefined && request.image === undefined) {
    if (!cluster.knowsNeeds(kept.needsHash)) cluster.storeNeeds(kept.needs)
    return kept
  }
  const plan = planOf(request, task, modules, (needs) => cluster.storeNeeds(needs))
  if (request.image === undefined) known.set(task, plan)
  return plan
}

export type PreparedRun = Omit<Plan, 'called'> & { specJson: string }

/** Throws `unprocessable` for inputs that do not match the function, `too_large` beyond the size limit of a spec. */
export function prepare(
  { overrides, trigger, contents, claims, traceparent, cause }: StartRequest,
  task: StartTask,
  plan: Plan,
): PreparedRun {
  const { called, ...rest } = plan
  const given = overrides.inputs ?? task.inputs
  const inputs = trigger === undefined ? given : inputsOf(trigger, called?.params, given)
  if (called !== undefined) requireCallable(called, inputs)
  const stored = trigger === undefined ? undefined : storedGiven(trigger, contents ?? [], called?.params)
  const spec: RunSpec = {
    ...plan.spec,
    inputs: stored === undefined ? inputs : given,
    ...(overrides.cliArgs === undefined ? {} : { cli_args: overrides.cliArgs }),
    ...(overrides.env === undefined ? {} : { env: { ...task.env, ...overrides.env } }),
    ...(overrides.stdin === undefined ? {} : { stdin: overrides.stdin }),
    ...(overrides.bytes === undefined ? {} : { bytes: overrides.bytes }),
    ...(stored !== undefined ? { given: stored } : trigger !== undefined ? { trigger } : {}),
    ...(claims === undefined ? {} : { claims }),
    ...(traceparent === undefined ? {} : { traceparent }),
  }
  const specJson = JSON.stringify(spec)
  // Messages and results of earlier tasks are larger than the body of a request may be.
  const isRequested = cause.type === 'user'
  const unrequestedChars = specJson.length + COPIES_SENT * bytesOf(contents ?? [])
  if (isRequested ? Buffer.byteLength(specJson) > MAX_SPEC_BYTES : unrequestedChars > MAX_UNREQUESTED_SPEC_CHARS) {
    const limit = isRequested ? `${MAX_SPEC_BYTES} bytes` : `${MAX_UNREQUESTED_SPEC_CHARS} characters`
    throw new ServiceError(
      'too_large',
      `inputs, arguments, environment, standard input and message of a run must be at most ${limit} together`,
    )
  }
  return { ...rest, spec, specJson }
}

/** A message is sent as the standard input and as an input. */
const COPIES_SENT = 2

const bytesOf = (contents: readonly (ContentRef | null)[]) =>
  contents.reduce((sum, content) => sum + (content?.bytes ?? 0), 0)

/** Undefined: no message is stored apart. */
function storedGiven(
  trigger: GivenMessages,
  contents: readonly (ContentRef | null)[],
  params: readonly string[] | undefined,
): StoredGiven | undefined {
  if (!contents.some((content) => content !== null)) return undefined
  const isList = Array.isArray(trigger)
  const messages = isList ? (trigger as readonly TriggerMessage[]) : [trigger as TriggerMessage]
  return {
    messages: messages.map((message, index) => {
      const content = contents[index] ?? null
      return content === null ? message : { content_key: content.key }
    }),
    is_list: isList,
    params: params ?? null,
  }
}

/** The size limit of the specs of one batch. */
export class SpecRoom {
  #chars = 0

  /** Throws `unavailable` if the batch is full, `too_large` for a spec that can never fit. */
  take(specJson: string, copies = 1): void {
    const chars = specJson.length * copies
    if (chars > MAX_BATCH_SPEC_CHARS)
      throw new ServiceError(
        'too_large',
        `${copies} runs with these inputs and arguments are too large to be started at once`,
      )
    if (this.#chars + chars > MAX_BATCH_SPEC_CHARS)
      throw new ServiceError('unavailable', 'too many large runs are being started; try again', {
        retryAfterSeconds: 1,
      })
    this.#chars += chars
  }
}

/** Throws `invalid_state` for a paused task, `unprocessable` for an invocation of a daemon or a broadcast. */
export function requireStartable(request: StartRequest, task: StartTask): void {
  // Its grantor can have been deleted a moment ago.
  if (task.paused_at !== null || (usesChannels(task) && task.domain_key !== null && task.user_key === null)) {
    throw new ServiceError(
      'invalid_state',
      'the task is paused: the user who granted its channels has lost a right, as its last_error says. A member with these rights can take it over',
    )
  }
  if (request.drivesTask) return
  if (task.daemon) throw new ServiceError('unprocessable', 'a daemon has no result to wait for: start it')
  if (task.broadcast) throw new ServiceError('unprocessable', 'a broadcast has a result per worker: start it')
}

const usesChannels = ({ publish_result: target, grants }: StartTask) => target !== null || grants.length > 0

/** Spec fields that few tasks have. */
function specExtras(task: StartTask): Partial<RunSpec> {
  return {
    ...(usesChannels(task) && task.domain_key !== null && task.user_key !== null
      ? { domain_key: task.domain_key, user_key: task.user_key }
      : {}),
    ...(task.secrets === null ? {} : { secrets: task.secrets.toString('base64') }),
  }
}

/** Throws `unprocessable` with the exports of the module. */
function requireFunction(module: ModuleFacts, task: StartTask): DescribedExport {
  const called = findFunction(module.exports, { explicit: task.function ?? undefined, fallback: task.name })
  if (called === undefined) {
    const wanted =
      task.function === null
        ? 'the module exports several functions and the task selects none'
        : `the module exports no function ${task.function}`
    throw new ServiceError('unprocessable', `${wanted}; it exports ${listFunctions(module.exports)}`)
  }
  return called
}

/** Throws `unprocessable` with the parameters of the function. */
function requireCallable(called: DescribedExport, inputs: readonly RunInput[]): void {
  if (called.name === COMMAND_FUNCTION) return
  if (!isCallableFromJson(called)) {
    throw new ServiceError(
      'unprocessable',
      `${called.name} ${formatType(called)} has parameters or results that JSON cannot represent`,
    )
  }
  const parsed = parseInputs([...inputs], called.params, called.name)
  if ('refused' in parsed) throw new ServiceError('unprocessable', parsed.refused)
}

function listFunctions(exports: readonly DescribedExport[]): string {
  const names = exports.filter((exported) => exported.kind === 'function').map((exported) => exported.name)
  return names.length === 0 ? 'none' : names.slice(0, 20).join(', ')
}
