/** What a start is made of: the rules of a start that need nothing but the task and its module. */
import { ServiceError } from '#core/errors/index.ts'
import { COMMAND_FUNCTION, findFunction, formatType, isCallableFromJson, parseInputs } from '#core/wasm/index.ts'
import type { DescribedExport } from '#core/wasm/index.ts'
import { MAX_BATCH_SPEC_CHARS, MAX_SPEC_CHARS } from '../model/limits.ts'
import { memoryClassBytes } from '../model/needs.ts'
import type { RunNeeds } from '../model/needs.ts'
import type { RunSpec } from '../model/run.ts'
import type { ResolvedImage, StartRequest } from '../model/start.ts'
import { specOf, type RunInput } from '../model/task-fields.ts'
import { inputsOf } from '../model/trigger-message.ts'
import type { ModuleFacts } from '../store/catalogue.ts'
import type { StartTask } from './known-tasks.ts'

/** What all starts of a task in one batch have in common. */
export type Plan = {
  digest: string
  /** The function that is called; undefined while nobody has read the module. */
  called: DescribedExport | undefined
  spec: RunSpec
  needs: RunNeeds
  needsHash: string
}

/**
 * Throws `unprocessable` when the task has no module, or none with its function; `unavailable` when its reference was changed
 * after it was resolved, and what the resolution failed with.
 */
export function planOf(
  request: StartRequest,
  task: StartTask,
  modules: ReadonlyMap<number, ModuleFacts>,
  /** Keeps the needs and answers their hash. */
  learnNeeds: (needs: RunNeeds) => string,
): Plan {
  const module = task.module_key === null ? undefined : modules.get(task.module_key)
  const source = task.image_url === null ? module : imageOf(request, task.image_url)
  if (source === undefined) {
    throw new ServiceError('unprocessable', 'the task has no module: upload one or give it an image_url')
  }
  const needs: RunNeeds = {
    domainId: task.domain_id,
    workerId: task.worker_id,
    labels: task.labels,
    runtime: module?.runtime ?? null,
    memoryBytes: memoryClassBytes(task.memory_limit_bytes),
  }
  return {
    digest: source.digest,
    called: module === undefined ? undefined : requireFunction(module, task),
    spec: {
      task_id: task.id,
      task_name: task.name,
      domain_id: task.domain_id,
      module_bytes: source.sizeBytes,
      module_reference: 'reference' in source ? source.reference : null,
      ...('notes' in source && source.notes.length > 0 ? { module_notes: source.notes } : {}),
      ...specOf(task),
      ...specExtras(task),
    },
    needs,
    needsHash: learnNeeds(needs),
  }
}

function imageOf({ image }: StartRequest, reference: string): ResolvedImage {
  if (image instanceof Error) throw image
  if (image?.imageUrl === reference) return image
  throw new ServiceError('unavailable', 'the task is being edited, try again', { retryAfterSeconds: 1 })
}

/** Throws `unprocessable` for inputs that the function does not take, `too_large` for more than a worker is sent at a time. */
export function prepare(
  { overrides, trigger }: StartRequest,
  task: StartTask,
  plan: Plan,
): Omit<Plan, 'called'> & { specJson: string } {
  const { called, ...rest } = plan
  const given = overrides.inputs ?? task.inputs
  const inputs = trigger === undefined ? given : inputsOf(trigger, called?.params, given)
  if (called !== undefined) requireCallable(called, inputs)
  const spec: RunSpec = {
    ...plan.spec,
    inputs,
    ...(overrides.cliArgs === undefined ? {} : { cli_args: overrides.cliArgs }),
    ...(overrides.env === undefined ? {} : { env: { ...task.env, ...overrides.env } }),
    ...(trigger === undefined ? {} : { trigger }),
  }
  const specJson = JSON.stringify(spec)
  if (specJson.length > MAX_SPEC_CHARS) {
    throw new ServiceError(
      'too_large',
      `inputs, arguments, environment and message of a run have at most ${MAX_SPEC_CHARS} characters together`,
    )
  }
  return { ...rest, spec, specJson }
}

/** What the runs of one batch may be together. */
export class SpecRoom {
  #chars = 0

  /** Throws `unavailable` when it is taken, `too_large` for what would never fit. */
  take(specJson: string, copies = 1): void {
    const chars = specJson.length * copies
    if (chars > MAX_BATCH_SPEC_CHARS)
      throw new ServiceError(
        'too_large',
        `${copies} runs with these inputs and arguments are too large to be started at once`,
      )
    if (this.#chars + chars > MAX_BATCH_SPEC_CHARS)
      throw new ServiceError('unavailable', 'too much is started at once, try again', { retryAfterSeconds: 1 })
    this.#chars += chars
  }
}

/** Throws `unprocessable` for an invocation of what does not end, or ends several times. */
export function requireStartable(request: StartRequest, task: StartTask): void {
  if (request.drivesTask) return
  if (task.daemon) throw new ServiceError('unprocessable', 'a daemon has no result to wait for: start it')
  if (task.broadcast) throw new ServiceError('unprocessable', 'a broadcast has a result per worker: start it')
}

/** What few tasks have beside their fields. */
function specExtras(task: StartTask): Partial<RunSpec> {
  const usesChannels = task.publish_result !== null || task.grants.length > 0
  return {
    ...(usesChannels && task.domain_key !== null && task.user_key !== null
      ? { domain_key: task.domain_key, user_key: task.user_key }
      : {}),
    ...(task.secrets === null ? {} : { secrets: task.secrets.toString('base64') }),
  }
}

/** Throws `unprocessable` naming what the module exports. */
function requireFunction(module: ModuleFacts, task: StartTask): DescribedExport {
  const called = findFunction(module.exports, { explicit: task.function ?? undefined, fallback: task.name })
  if (called === undefined) {
    const wanted =
      task.function === null
        ? 'the module leaves open which function is meant'
        : `the module exports no function ${task.function}`
    throw new ServiceError('unprocessable', `${wanted}; it exports ${listFunctions(module.exports)}`)
  }
  return called
}

/** Throws `unprocessable` naming what the function takes. */
function requireCallable(called: DescribedExport, inputs: readonly RunInput[]): void {
  if (called.name === COMMAND_FUNCTION) return
  if (!isCallableFromJson(called)) {
    throw new ServiceError(
      'unprocessable',
      `${called.name} ${formatType(called)} takes or returns what JSON cannot carry`,
    )
  }
  const parsed = parseInputs([...inputs], called.params, called.name)
  if ('refused' in parsed) throw new ServiceError('unprocessable', parsed.refused)
}

function listFunctions(exports: readonly DescribedExport[]): string {
  const names = exports.filter((exported) => exported.kind === 'function').map((exported) => exported.name)
  return names.length === 0 ? 'none' : names.slice(0, 20).join(', ')
}
