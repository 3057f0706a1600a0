/**
 * Hello and Welcome: the runs that a worker claims to hold, and the decision for each. Both can list very many runs, and
 * are processed with pauses for other work.
 */
import type { MessageInitShape } from '@bufbuild/protobuf'
import { ServiceError } from '#core/errors/index.ts'
import { inTurns } from '#core/turns.ts'
import { TASK_STATE, taskStateFromWire } from '#proto/index.ts'
import type { Hello, RunRefSchema, SessionResponseSchema, TaskState } from '#proto/index.ts'
import type { RunIdentity } from '../model/run.ts'
import type { HelloClaims, Reconciliation } from '../writer/reconcile-runs.ts'
import { fromRef, toRef } from './translate.ts'

const MAX_BOOT_ID_CHARS = 256
/** Runs per part of a Welcome. */
const RUNS_PER_PART = 200

/** Throws `malformed` for a run without an id, and for a boot id that cannot be stored. */
export async function readClaims({ bootId, running, spooled }: Hello): Promise<HelloClaims> {
  if (bootId.length > MAX_BOOT_ID_CHARS || bootId.includes('\0'))
    throw new ServiceError('malformed', `a boot id must be at most ${MAX_BOOT_ID_CHARS} characters without NUL`)
  const runningById = new Map<string, { run: RunIdentity; state: TaskState }>()
  const spooledById = new Map<string, RunIdentity>()
  await inTurns(running, (held) => {
    const run = fromRef(held.run)
    runningById.set(run.id, { run, state: taskStateFromWire(held.state) ?? TASK_STATE.scheduled })
  })
  await inTurns(spooled, (ref) => {
    const run = fromRef(ref)
    spooledById.set(run.id, run)
  })
  return { bootId, running: runningById, spooled: spooledById }
}

type List = 'keep' | 'stop' | 'resend' | 'acknowledged'

/** The list of the Welcome for each claimed run; a run that is claimed twice is in one list. */
function* listRuns(
  { running, spooled }: HelloClaims,
  { keep, resend }: Reconciliation,
): Generator<readonly [List, RunIdentity]> {
  for (const { run } of running.values()) {
    if (keep.has(run.id)) yield ['keep', run]
    else if (!resend.has(run.id)) yield ['stop', run]
  }
  for (const run of spooled.values()) {
    if (resend.has(run.id)) yield ['resend', run]
    else if (!keep.has(run.id)) yield ['acknowledged', run]
  }
}

/** The messages that form the Welcome together. */
export function* welcomeParts(
  claims: HelloClaims,
  settled: Reconciliation,
): Generator<MessageInitShape<typeof SessionResponseSchema>> {
  const empty = (): Record<List, MessageInitShape<typeof RunRefSchema>[]> => ({
    keep: [],
    stop: [],
    resend: [],
    acknowledged: [],
  })
  let part = empty()
  let runs = 0
  for (const [list, run] of listRuns(claims, settled)) {
    part[list].push(toRef(run))
    runs += 1
    if (runs % RUNS_PER_PART !== 0) continue
    yield { message: { case: 'welcome', value: part } }
    part = empty()
  }
  yield { message: { case: 'welcome', value: part } }
}
