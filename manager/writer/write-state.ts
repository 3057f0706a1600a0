/**
 * The state of tasks, in the transaction that records the ends of runs: a run whose values were changed by others since it read them has
 * no end, and runs again. Who writes state of a task locks its row in `task_state_sizes` first, here and in `store/task-state.ts`, so that
 * what was checked stays so until the commit. Runs of one batch are checked in their order, each with what those before it write.
 */
import { ServiceError } from '#core/errors/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { AmountChange } from '../store/amount-quotas.ts'
import { MAX_STATE_BYTES, MAX_STATE_KEYS } from '../store/task-state.ts'
import { NO_STATE_OF_CLIENT, mayHaveStateOf } from '../model/run.ts'
import type { RunEnding, RunHandle, StateEntry } from '../model/run.ts'
import type { RunBatch, StateQuotas } from './batch.ts'

/** How often a run is repeated because of conflicts; then it fails. */
export const MAX_CONFLICTS = 5
/** Reason of an attempt whose end did not count, and of a run that met too many conflicts. */
export const STATE_CONFLICT = 'state_conflict'

type End = { run: Pick<RunHandle, 'id' | 'taskKey' | 'spec'>; ending: RunEnding }

/** `conflict`: others have changed what the run has read. A text: why its state cannot be stored. Undefined: it can. */
type Verdict = 'conflict' | { refused: string } | undefined

/** Bytes of a stored value with its key; undefined: there is none. */
type Stored = { version: number; bytes: number } | undefined

type Size = { keys: number; bytes: number }

const LOCK = `SELECT task_key, keys, bytes FROM task_state_sizes WHERE task_key = ANY ($1::bigint[]) ORDER BY task_key FOR UPDATE`

const CREATE = `
  INSERT INTO task_state_sizes (task_key) SELECT t.key FROM tasks t WHERE t.key = ANY ($1::bigint[]) ORDER BY t.key
  ON CONFLICT ON CONSTRAINT task_state_sizes_pkey DO NOTHING`

const READ = `
  SELECT s.task_key, s.client, s.name, s.version, octet_length(s.name) + octet_length(s.value) AS bytes
  FROM unnest($1::bigint[], $2::text[], $3::text[]) AS c (task_key, client, name)
  JOIN task_state s ON s.task_key = c.task_key AND s.client = c.client AND s.name = c.name`

const WRITE = `
  WITH given AS (SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[]) AS c (task_key, client, name, value)),
  removed AS (DELETE FROM task_state s USING given g
    WHERE g.value IS NULL AND s.task_key = g.task_key AND s.client = g.client AND s.name = g.name),
  written AS (INSERT INTO task_state AS s (task_key, client, name, value, version)
    SELECT g.task_key, g.client, g.name, g.value, nextval('task_state_versions') FROM given g WHERE g.value IS NOT NULL
    ON CONFLICT ON CONSTRAINT task_state_pkey DO UPDATE SET value = EXCLUDED.value, version = EXCLUDED.version, updated_at = now())
  UPDATE task_state_sizes t SET keys = t.keys + c.keys, bytes = t.bytes + c.bytes
  FROM unnest($5::bigint[], $6::integer[], $7::bigint[]) AS c (task_key, keys, bytes)
  WHERE t.task_key = c.task_key AND (c.keys <> 0 OR c.bytes <> 0)`

const placeOf = (taskKey: number, { client, key }: Pick<StateEntry, 'client' | 'key'>) =>
  JSON.stringify([taskKey, client, key])

const bytesOf = ({ key, value }: StateEntry): number => Buffer.byteLength(key) + (value?.length ?? 0)

const isWritten = (entry: StateEntry): entry is StateEntry & { value: Uint8Array | null } => entry.value !== undefined

/** Whether the end of a run writes state. */
export const writesState = ({ state, stateEntries }: RunEnding): boolean =>
  state === TASK_STATE.completed && stateEntries?.some(isWritten) === true

/** Bytes of state that cost as much as a run in a batch. */
const BYTES_PER_WEIGHT = 1024

/** What the state of these ends costs in a batch, in runs. */
export function weightOfState(ends: readonly { ending: RunEnding }[]): number {
  let weight = 0
  for (const { ending } of ends)
    for (const { value } of ending.stateEntries ?? []) weight += 1 + Math.ceil((value?.length ?? 0) / BYTES_PER_WEIGHT)
  return weight
}

/** Ends of one change: more are committed apart, so that no batch holds the event loop for long. */
const MAX_CHANGE_WEIGHT = 2_000

/** The ends in parts that a batch may have. Ends without state stay together. */
export function divideByState<E extends { ending: RunEnding }>(ends: readonly E[]): E[][] {
  const parts: E[][] = [[]]
  let weight = 0
  for (const end of ends) {
    const added = weightOfState([end])
    if (weight > 0 && weight + added > MAX_CHANGE_WEIGHT) {
      parts.push([])
      weight = 0
    }
    parts.at(-1)?.push(end)
    weight += added
  }
  return parts
}

/**
 * What the domains of these ends have is read before they are submitted, if it is not known: in the transaction, the ends of other domains would
 * wait for it too. Returns the reads that are under way, by domain; undefined: none.
 */
export function readiesOf<E extends { ending: RunEnding }>(
  ends: readonly E[],
  domainOf: (end: E) => string | null | undefined,
  amounts: Pick<StateQuotas, 'ready'>,
): ReadonlyMap<string, Promise<void>> | undefined {
  const writing = ends.filter(({ ending }) => writesState(ending))
  if (writing.length === 0) return undefined
  const sizes = new Map<string, Size>()
  for (const end of writing) {
    const domainId = domainOf(end)
    if (domainId === null || domainId === undefined) continue
    const size = sizes.getOrInsertComputed(domainId, () => ({ keys: 0, bytes: 0 }))
    // As if none of the keys were stored.
    for (const entry of end.ending.stateEntries ?? []) if (isWritten(entry)) grow(size, undefined, entry)
  }
  const readies = new Map<string, Promise<void>>()
  for (const [domainId, size] of sizes) {
    const ready = amounts.ready(domainId, amountOf(size))
    if (ready !== undefined) readies.set(domainId, ready)
  }
  return readies.size === 0 ? undefined : readies
}

/** The state that a batch changes, checked under locks. */
export class StateChanges {
  readonly #batch: RunBatch
  readonly #verdicts: ReadonlyMap<string, Verdict>
  /** What is stored before the batch. */
  readonly #stored: ReadonlyMap<string, Stored>

  private constructor(batch: RunBatch, stored: ReadonlyMap<string, Stored>, verdicts: ReadonlyMap<string, Verdict>) {
    this.#batch = batch
    this.#stored = stored
    this.#verdicts = verdicts
  }

  /** Undefined: none of the ends writes state. */
  static async check(batch: RunBatch, ends: readonly End[]): Promise<StateChanges | undefined> {
    const writing = ends.filter(({ ending }) => writesState(ending))
    if (writing.length === 0) return undefined
    const { amounts } = batch.context
    const { sizes, stored } = await lock(batch, writing)
    return new StateChanges(batch, stored, verdictsOf(writing, { sizes, stored, amounts }))
  }

  verdictOf(runId: string): Verdict {
    return this.#verdicts.get(runId)
  }

  /** Writes the state of these runs, whose ends are recorded in this transaction. */
  async write(ends: readonly End[]): Promise<void> {
    const last = new Map<string, { taskKey: number; entry: StateEntry & { value: Uint8Array | null } }>()
    const domains = new Map(ends.map(({ run }) => [run.taskKey, run.spec.domain_id]))
    for (const { run, ending } of ends) {
      if (!writesState(ending) || this.#verdicts.get(run.id) !== undefined) continue
      for (const entry of ending.stateEntries ?? [])
        if (isWritten(entry)) last.set(placeOf(run.taskKey, entry), { taskKey: run.taskKey, entry })
    }
    if (last.size === 0) return
    // Two writers of one task wait for its lock, not for rows of each other.
    const written = [...last.values()]
    const grown = new Map<number, Size>()
    for (const { taskKey, entry } of written) {
      const size = grown.getOrInsertComputed(taskKey, () => ({ keys: 0, bytes: 0 }))
      grow(size, this.#stored.get(placeOf(taskKey, entry)), entry)
    }
    this.#batch.afterCommit(() => {
      const { amounts } = this.#batch.context
      for (const [taskKey, size] of grown) amounts.changed(domains.get(taskKey) ?? null, amountOf(size))
    })
    await this.#batch.rows('write-task-state', WRITE, [
      written.map(({ taskKey }) => taskKey),
      written.map(({ entry }) => entry.client),
      written.map(({ entry }) => entry.key),
      written.map(({ entry }) => (entry.value === null ? null : Buffer.from(entry.value))),
      [...grown.keys()],
      [...grown.values()].map(({ keys }) => keys),
      [...grown.values()].map(({ bytes }) => bytes),
    ])
  }
}

async function lock(batch: RunBatch, ends: readonly End[]) {
  const taskKeys = [...new Set(ends.map(({ run }) => run.taskKey))].toSorted((left, right) => left - right)
  const places = new Map(
    ends.flatMap(({ run: { taskKey }, ending }) =>
      (ending.stateEntries ?? []).map((entry) => [placeOf(taskKey, entry), { taskKey, entry }] as const),
    ),
  )
  const asked = [...places.values()]
  const read = async () =>
    await Promise.all([
      batch.rows<{ task_key: number } & Size>('lock-task-state', LOCK, [taskKeys]),
      // It has a snapshot of its own, after the lock.
      batch.rows<{ task_key: number; client: string; name: string; version: number; bytes: number }>(
        'check-task-state',
        READ,
        [
          asked.map(({ taskKey }) => taskKey),
          asked.map(({ entry }) => entry.client),
          asked.map(({ entry }) => entry.key),
        ],
      ),
    ])
  let [sizes, rows] = await read()
  if (sizes.length < taskKeys.length) {
    await batch.rows('create-task-state', CREATE, [taskKeys])
    ;[sizes, rows] = await read()
  }
  return {
    sizes: new Map(sizes.map(({ task_key: key, keys, bytes }) => [key, { keys, bytes }])),
    stored: new Map(
      rows.map(({ task_key: key, client, name, version, bytes }) => [
        placeOf(key, { client, key: name }),
        { version, bytes },
      ]),
    ),
  }
}

const amountOf = ({ keys, bytes }: Size): AmountChange => ({ state_keys: keys, state_bytes: bytes })

/** Version of what a run of this batch writes: nobody has read it yet. */
const UNREAD = -1

type Before = { sizes: ReadonlyMap<number, Size>; stored: ReadonlyMap<string, Stored>; amounts: StateQuotas }

function verdictsOf(ends: readonly End[], { sizes, stored, amounts }: Before): Map<string, Verdict> {
  const added = new Map<string | null, Size>()
  const now = new Map(stored)
  const sizesNow = new Map([...sizes].map(([key, size]) => [key, { ...size }]))
  return new Map(
    ends.map(({ run, ending }): [string, Verdict] => {
      const entries = ending.stateEntries ?? []
      if (!entries.every(({ client }) => mayHaveStateOf(run.spec, client)))
        return [run.id, { refused: NO_STATE_OF_CLIENT }]
      const isStale = entries.some((entry) => {
        const version = now.get(placeOf(run.taskKey, entry))?.version ?? 0
        return entry.readVersion !== undefined && entry.readVersion !== version
      })
      if (isStale) return [run.id, 'conflict']
      const before = sizesNow.get(run.taskKey)
      // The task was deleted; its run has no row to end either.
      if (before === undefined) return [run.id, 'conflict']
      const after = { ...before }
      const changed = entries.filter(isWritten)
      for (const entry of changed) grow(after, now.get(placeOf(run.taskKey, entry)), entry)
      const ofDomain = added.getOrInsertComputed(run.spec.domain_id, () => ({ keys: 0, bytes: 0 }))
      const growth = { keys: after.keys - before.keys, bytes: after.bytes - before.bytes }
      const refused = refusalOf(before, after) ?? refusalOfDomain(amounts, run.spec.domain_id, ofDomain, growth)
      if (refused !== undefined) return [run.id, { refused }]
      ofDomain.keys += growth.keys
      ofDomain.bytes += growth.bytes
      sizesNow.set(run.taskKey, after)
      for (const entry of changed) {
        const one = entry.value === null ? undefined : { version: UNREAD, bytes: bytesOf(entry) }
        now.set(placeOf(run.taskKey, entry), one)
      }
      return [run.id, undefined]
    }),
  )
}

function grow(size: Size, before: Stored, entry: StateEntry): void {
  size.keys += Number(entry.value !== null) - Number(before !== undefined)
  size.bytes += (entry.value === null ? 0 : bytesOf(entry)) - (before?.bytes ?? 0)
}

/** A task that is beyond a limit may still shrink. */
function refusalOf(before: Size, after: Size): string | undefined {
  if (after.keys > MAX_STATE_KEYS && after.keys > before.keys)
    return `the state of the task would have ${after.keys} keys, at most ${MAX_STATE_KEYS} are stored`
  if (after.bytes > MAX_STATE_BYTES && after.bytes > before.bytes)
    return `the state of the task would have ${after.bytes} bytes, at most ${MAX_STATE_BYTES} are stored`
  return undefined
}

/** `added`: by runs before it in the batch. What does not grow is not refused. */
function refusalOfDomain(amounts: StateQuotas, domainId: string | null, added: Size, growth: Size): string | undefined {
  const sum = { keys: added.keys + growth.keys, bytes: added.bytes + growth.bytes }
  try {
    amounts.require(domainId, {
      ...(growth.keys > 0 ? { state_keys: sum.keys } : {}),
      ...(growth.bytes > 0 ? { state_bytes: sum.bytes } : {}),
    })
    return undefined
  } catch (error) {
    if (error instanceof ServiceError) return error.message
    throw error
  }
}
