/** A follower that missed messages is handed them in steps, at its own pace, until little is left; then it joins the others. */
import type { Database } from '#core/database/index.ts'
import { readSettled, settledEnd } from '#core/changelog/index.ts'
import { Slots } from '#core/slots.ts'
import { sql } from '#core/sql.ts'
import { behind, findBacklog, loadLogRows } from './backlog.ts'
import type { Missed } from './backlog.ts'
import { BATCH_LOG, batchOf } from './batch-log.ts'
import type { Follower } from './follower.ts'
import type { LogReader } from './log-reader.ts'
import type { StoredBatch } from './stored.ts'
import { loadWanted } from './stored.ts'
import type { LiveToken } from './token.ts'

/** Batches of one step: few at first, more as long as what they hold stays small. */
const FIRST_STEP_BATCHES = 8
const MAX_STEP_BATCHES = 200
/** Bytes of a step, about: a batch is never cut. */
const STEP_BYTES = 2 * 1024 * 1024
/** Steps that are loaded at a time by this process, and for one domain. */
const MAX_LOADS = 8
const MAX_LOADS_PER_DOMAIN = 6
/** After a restart everybody comes back at once. */
const LOAD_WAIT_MS = 60_000
const MAX_WAITING_LOADS = 100_000

/** Where a follower goes on: behind `after`, with so many batches at once. */
type CatchUpState = { after: LiveToken; step: number }

export class CatchUp {
  readonly #database: Database
  readonly #reader: LogReader
  readonly #loads = new Slots({
    what: 'reads of missed messages',
    max: MAX_LOADS,
    share: MAX_LOADS_PER_DOMAIN,
    waitMs: LOAD_WAIT_MS,
    maxWaiting: MAX_WAITING_LOADS,
  })

  constructor(database: Database, reader: LogReader) {
    this.#database = database
    this.#reader = reader
  }

  /** Resolves when the follower takes part, or is ended. */
  async run(follower: Follower, start: LiveToken): Promise<void> {
    const { db } = this.#database
    let state: CatchUpState = { after: await this.#runBounded(follower, start), step: FIRST_STEP_BATCHES }
    while (!follower.isEnded) {
      // Before the read: what was settled then is in it, or was delivered before.
      const settled = await settledEnd(db)
      const { after, step } = state
      const { xmax, running } = after.snapshot
      const where = sql<boolean>`(xid >= ${xmax}::xid8 OR xid = ANY (${[...running]}::xid8[]))`
      const rows = await readSettled(db, BATCH_LOG, after.position, step, { where })
      const last = rows.at(-1)
      if (last !== undefined) {
        const next = { snapshot: after.snapshot, position: last.position }
        state = await this.#deliver(follower, () => Promise.resolve(rows.map(batchOf)), state, next)
      }
      if (rows.length === step) continue
      // Nothing up to there is missing any more, and need not be read again by those who hand over.
      state.after = { snapshot: behind(state.after, settled.xid), position: state.after.position }
      if (await this.#reader.join(follower, state.after)) return
    }
  }

  /** What a follower with a bound missed of its channel, without the batches of all the others. Returns where it stands then. */
  async #runBounded(follower: Follower, start: LiveToken): Promise<LiveToken> {
    if (follower.backlog === undefined) return start
    const { maxMessages, onSkipped } = follower.backlog
    const backlog = await findBacklog(this.#database, follower.access.channelKey, start, maxMessages)
    if (backlog === undefined) return start
    if (backlog.skipped > 0 && !follower.isEnded) onSkipped(backlog.skipped)
    let state: CatchUpState = { after: start, step: FIRST_STEP_BATCHES }
    for (let at = 0; at < backlog.batches.length;) {
      if (follower.isEnded) return state.after
      const some = backlog.batches.slice(at, at + state.step)
      at += some.length
      const { xid, seq } = some.at(-1) as Missed
      const next = { snapshot: start.snapshot, position: { xid, seq } }
      state = await this.#deliver(follower, () => loadLogRows(this.#database, some), state, next)
    }
    return backlog.end
  }

  /** A step is loaded and handed to the follower, which counts it, in a turn of its own. */
  async #deliver(
    follower: Follower,
    load: () => Promise<readonly StoredBatch[]>,
    { after, step }: CatchUpState,
    next: LiveToken,
  ): Promise<CatchUpState> {
    const bytes = await this.#loads.run(follower.access.domainId, async () => {
      if (follower.isEnded) return 0
      const messages = await loadWanted(this.#database.db, follower, await load())
      follower.deliverStep(messages, after, next)
      return messages.reduce((sum, { payload }) => sum + payload.length, 0)
    })
    await follower.drained()
    return { after: next, step: nextStep(step, bytes) }
  }
}

/** As many batches as hold about what one step should. */
function nextStep(step: number, bytes: number): number {
  const fitting = Math.floor((step * STEP_BYTES) / Math.max(1, bytes))
  return Math.max(1, Math.min(MAX_STEP_BATCHES, step * 2, fitting))
}
