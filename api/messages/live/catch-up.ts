/** Delivers missed messages to a follower in steps, at its own pace, until few are left; then it joins the live followers. */
import type { Database } from '#core/database/index.ts'
import { readSettled, settledEnd } from '#core/changelog/index.ts'
import { Slots } from '#core/slots.ts'
import { sql } from '#core/sql.ts'
import { extendSnapshot, findMissedMessages, loadLogRows } from './missed-messages.ts'
import type { MissedBatch } from './missed-messages.ts'
import { BATCH_LOG, batchOf } from './batch-log.ts'
import type { Follower } from './follower.ts'
import type { LogReader } from './log-reader.ts'
import type { StoredBatch } from './stored.ts'
import { loadWanted } from './stored.ts'
import type { LiveToken } from './token.ts'

/** The number of batches of one step: few at first, more while their content is small. */
const FIRST_STEP_BATCHES = 8
const MAX_STEP_BATCHES = 200
/** The approximate size of a step in bytes; batches are not split. */
const STEP_BYTES = 2 * 1024 * 1024
/** The number of steps that are loaded at a time by this process, and for one domain. */
const MAX_LOADS = 8
const MAX_LOADS_PER_DOMAIN = 6
/** All followers may reconnect at once after a restart. */
const LOAD_WAIT_MS = 60_000
const MAX_WAITING_LOADS = 100_000

/** The position of a follower and the number of batches of its next step. */
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

  /** Resolves when the follower has joined the live followers, or has ended. */
  async run(follower: Follower, start: LiveToken): Promise<void> {
    const { db } = this.#database
    let state: CatchUpState = { after: await this.#runBounded(follower, start), step: FIRST_STEP_BATCHES }
    while (!follower.isEnded) {
      // The end is read before the messages: rows that were settled at this point are read with them, or were delivered before.
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
      // Nothing before this position is missing any more, so the handover need not read it.
      state.after = { snapshot: extendSnapshot(state.after, settled.xid), position: state.after.position }
      if (await this.#reader.join(follower, state.after)) return
    }
  }

  /** Delivers the missed messages of a follower with a backlog limit, without reading the batches of other channels. Returns its position. */
  async #runBounded(follower: Follower, start: LiveToken): Promise<LiveToken> {
    if (follower.backlog === undefined) return start
    const { maxMessages, onSkipped } = follower.backlog
    const backlog = await findMissedMessages(this.#database, follower.access.channelKey, start, maxMessages)
    if (backlog === undefined) return start
    if (backlog.skipped > 0 && !follower.isEnded) onSkipped(backlog.skipped)
    let state: CatchUpState = { after: start, step: FIRST_STEP_BATCHES }
    for (let at = 0; at < backlog.batches.length;) {
      if (follower.isEnded) return state.after
      const some = backlog.batches.slice(at, at + state.step)
      at += some.length
      const { xid, seq } = some.at(-1) as MissedBatch
      const next = { snapshot: start.snapshot, position: { xid, seq } }
      state = await this.#deliver(follower, () => loadLogRows(this.#database, some), state, next)
    }
    return backlog.end
  }

  /** Loads a step and delivers it to the follower in its own turn of the event loop. */
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

/** The number of batches that contain about the size of one step. */
function nextStep(step: number, bytes: number): number {
  const fitting = Math.floor((step * STEP_BYTES) / Math.max(1, bytes))
  return Math.max(1, Math.min(MAX_STEP_BATCHES, step * 2, fitting))
}
