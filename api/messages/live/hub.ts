/**
 * Live delivery: one reader of the log of batches for all followers of this process, whatever their protocol. It reads while
 * somebody follows, at once when a batch was committed here or a hint says so, and at short intervals otherwise; so a
 * message reaches the followers of every process, also when hints are lost. A batch that was committed is delivered once
 * to each follower; what one publisher sent is delivered in its order.
 */
import type pg from 'pg'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import {
  LOG_START,
  comparePositions,
  currentSnapshot,
  readNew,
  readSettled,
  settledEnd,
  startRounds,
} from '#core/log/index.ts'
import type { LogRow, LogSnapshot, LogTable, Pause } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { sql } from '#core/sql.ts'
import { withDeadline } from '#core/time.ts'
import type { IncomingMessage } from '../message.ts'
import { behind, findBacklog, loadLogRows } from './backlog.ts'
import type { Missed } from './backlog.ts'
import { Followers } from './followers.ts'
import type { Delivery, Follower } from './follower.ts'
import { startLiveHints } from './hints.ts'
import { fromIncoming } from './live-message.ts'
import type { LiveMessage } from './live-message.ts'
import { createRecentBatches } from './recent.ts'
import type { StoredBatch } from './stored.ts'
import { loadBatches, loadMessages } from './stored.ts'
import type { LiveToken } from './token.ts'

const BATCH_LOG: LogTable = { name: 'ingest_batches', columns: ['arrived_at', 'envelopes'] }
/** The log is read so often when no hint comes. */
const INTERVAL_MS = 250
/** Nobody follows: the next follower wakes the hub. */
const IDLE_MS = 60_000
const MAX_BACKOFF_MS = 2000
/** Connecting and each read may take so long before the connection is given up. */
const READ_DEADLINE_MS = 5000
/** Nobody waits longer for a stream to begin. */
const JOIN_DEADLINE_MS = 10_000
/** Batches of one read. A process that missed more ends its streams: they begin again where they stood. */
const MAX_BATCHES = 5000
/** Batches of one step of a follower that catches up: few at first, more as long as what they hold stays small. */
const FIRST_CATCH_UP_BATCHES = 8
const CATCH_UP_BATCHES = 200
/** Bytes of such a step, about: a batch is never cut. */
const CATCH_UP_BYTES = 2 * 1024 * 1024
/** Steps that are loaded at a time by this process, and for one domain. */
const MAX_LOADS = 8
const MAX_LOADS_PER_DOMAIN = 6
/** After a restart everybody comes back at once. */
const LOAD_WAIT_MS = 60_000
const MAX_WAITING_LOADS = 100_000
/** How often the rights of every follower are looked at; a revocation is in force within a second. */
const SWEEP_MS = 300

export type LiveHub = {
  /**
   * Tells the hub of a batch that this process is about to commit: the log may show it before the database has answered. What
   * is not committed in the end nobody reads of.
   */
  committing(batchSeq: number, messages: readonly IncomingMessage[]): void
  /** Tells the hub of a batch that this process committed. */
  committed(batchSeq: number, messages: readonly IncomingMessage[]): void
  /**
   * Delivers what is committed from now on, or everything after `after`, until `close` is called or the follower is
   * told its end. Resolves when nothing that commits from then on can be missed. Throws `unavailable` when there are too
   * many followers.
   */
  follow(follower: Follower, after?: LiveToken): Promise<{ close(): void }>
  readonly size: number
  /** Where those stand who follow live: everything before it was delivered. Undefined while nobody follows. */
  readonly position: LiveToken | undefined
  /** Ends every stream and takes no new one. */
  endAll(): void
  stop(): Promise<void>
}

type Joining = { follower: Follower; after: LiveToken | undefined; done: (joined: boolean) => void }

export function startLiveHub({ database, bus, logger }: { database: Database; bus: Bus; logger: Logger }): LiveHub {
  const followers = new Followers()
  const recent = createRecentBatches()
  let client: pg.Client | undefined
  let since: LogSnapshot | undefined
  /** Who waits to take part from the end of the next read on: at once, or with what lies behind a token before it. */
  let joining: Joining[] = []
  let backoffMs = INTERVAL_MS
  let isStopped = false
  let sweeping: NodeJS.Timeout | undefined
  const loads = new Slots({
    what: 'reads of missed messages',
    max: MAX_LOADS,
    share: MAX_LOADS_PER_DOMAIN,
    waitMs: LOAD_WAIT_MS,
    maxWaiting: MAX_WAITING_LOADS,
  })

  async function batchesOf(rows: readonly LogRow[], channels: ReadonlyMap<number, string>): Promise<LiveMessage[]> {
    const known = new Map<number, readonly LiveMessage[]>()
    const missing: StoredBatch[] = []
    for (const row of rows) {
      const messages = recent.take(row.position.seq, followers.state)
      if (messages === undefined) missing.push(batchOf(row))
      else known.set(row.position.seq, messages)
    }
    const loaded = await loadBatches(database.db, missing, channels)
    return rows.flatMap(({ position }) => known.get(position.seq) ?? loaded.get(position.seq) ?? [])
  }

  async function readOnce(): Promise<void> {
    client ??= await database.dedicated('skein live messages', READ_DEADLINE_MS)
    const connection = client
    // Whoever asks while this read is under way may have been given what it does not see: the next one takes him in.
    const waiting = joining
    joining = []
    try {
      await deliverNew(connection, waiting)
    } finally {
      // Who could not be handed over is tried again with the next read.
      joining.unshift(...waiting)
    }
  }

  async function deliverNew(connection: pg.Client, waiting: Joining[]): Promise<void> {
    const before = since ?? (await withDeadline(currentSnapshot(connection), READ_DEADLINE_MS, 'reading the log'))
    const read = readNew(connection, BATCH_LOG, before, MAX_BATCHES)
    const { rows, snapshot } = await withDeadline(read, READ_DEADLINE_MS, 'reading the log')
    if (rows === undefined) followers.endAll('behind')
    else if (rows.length > 0) {
      const messages = await batchesOf(rows, followers.channels)
      followers.deliver(messages, tokenOf(before), tokenOf(snapshot))
    }
    // Where nothing is published it stays, though it grows old: whoever writes the position down need not write it again.
    since = rows?.length === 0 ? before : snapshot
    await handOver(waiting, snapshot)
  }

  /** Those who join are given what lies between their token and this snapshot, and go on with the others. */
  async function handOver(waiting: Joining[], snapshot: LogSnapshot): Promise<void> {
    for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
      const { follower, after, done } = next
      const rows = after === undefined ? [] : await readSince(after, snapshot)
      if (rows !== undefined) {
        if (after !== undefined)
          deliverTo(follower, await loadFor(follower, rows.map(batchOf)), after, tokenOf(snapshot))
        followers.attach(follower)
        if (after !== undefined) follower.live()
      }
      waiting.shift()
      done(rows !== undefined)
    }
  }

  /** What `until` saw and the token did not; undefined when it is too much for one step. */
  async function readSince(after: LiveToken, until: LogSnapshot): Promise<LogRow[] | undefined> {
    const connection = client as pg.Client
    const { rows } = await withDeadline(
      readNew(connection, BATCH_LOG, after.snapshot, CATCH_UP_BATCHES * 2),
      READ_DEADLINE_MS,
      'reading the log',
    )
    return rows?.filter(({ position }) => comparePositions(position, after.position) > 0 && saw(until, position.xid))
  }

  async function loadFor(follower: Follower, batches: readonly StoredBatch[]): Promise<LiveMessage[]> {
    const { channelKey, channelId } = follower.access
    const messages = await loadMessages(database.db, batches, new Map([[channelKey, channelId]]))
    return messages.filter((message) => follower.wants(message))
  }

  /** A step of a follower that catches up is loaded and handed to it, which counts it, in a turn of its own. */
  async function deliverStep(
    follower: Follower,
    load: () => Promise<readonly StoredBatch[]>,
    after: LiveToken,
    next: LiveToken,
  ): Promise<number> {
    const bytes = await loads.run(follower.access.domainId, async () => {
      if (follower.isEnded) return 0
      const messages = await loadFor(follower, await load())
      deliverTo(follower, messages, after, next)
      return messages.reduce((sum, { payload }) => sum + payload.length, 0)
    })
    await follower.drained()
    return bytes
  }

  /** Delivers in steps until little is left, at the pace of the follower; then hands over. */
  async function catchUp(follower: Follower, start: LiveToken): Promise<void> {
    let after = await catchUpBounded(follower, start)
    let step = FIRST_CATCH_UP_BATCHES
    while (!follower.isEnded && !isStopped) {
      // Before the read: what was settled then is in it, or was delivered before.
      const settled = await settledEnd(database.db)
      const { xmax, running } = after.snapshot
      const where = sql<boolean>`(xid >= ${xmax}::xid8 OR xid = ANY (${[...running]}::xid8[]))`
      const rows = await readSettled(database.db, BATCH_LOG, after.position, step, { where })
      const last = rows.at(-1)
      const hasMore = rows.length === step
      if (last !== undefined) {
        const next = { snapshot: after.snapshot, position: last.position }
        const bytes = await deliverStep(follower, () => Promise.resolve(rows.map(batchOf)), after, next)
        step = nextStep(step, bytes)
        after = next
      }
      if (hasMore) continue
      // Nothing up to there is missing any more, and need not be read again by those who hand over.
      after = { snapshot: behind(after, settled.xid), position: after.position }
      if (await join(follower, after)) return
    }
  }

  /** What a follower with a bound missed of its channel, without the batches of all the others. Returns where it stands then. */
  async function catchUpBounded(follower: Follower, start: LiveToken): Promise<LiveToken> {
    if (follower.backlog === undefined) return start
    const { maxMessages, onSkipped } = follower.backlog
    const backlog = await findBacklog(database, follower.access.channelKey, start, maxMessages)
    if (backlog === undefined) return start
    if (backlog.skipped > 0 && !follower.isEnded) onSkipped(backlog.skipped)
    let after = start
    for (let at = 0, step = FIRST_CATCH_UP_BATCHES; at < backlog.batches.length;) {
      if (follower.isEnded || isStopped) return after
      const some = backlog.batches.slice(at, at + step)
      const { xid, seq } = some.at(-1) as Missed
      const next = { snapshot: start.snapshot, position: { xid, seq } }
      const bytes = await deliverStep(follower, () => loadLogRows(database, some), after, next)
      at += some.length
      step = nextStep(step, bytes)
      after = next
    }
    return backlog.end
  }

  /** False when it has to catch up first. */
  function join(follower: Follower, after: LiveToken | undefined): Promise<boolean> {
    const joined = new Promise<boolean>((done) => joining.push({ follower, after, done }))
    rounds.poke()
    return joined
  }

  async function round(): Promise<Pause> {
    if (isStopped || followers.size === 0) {
      since = undefined
      recent.clear()
      return { pauseMs: IDLE_MS, isPokable: true }
    }
    try {
      await readOnce()
      backoffMs = INTERVAL_MS
      return { pauseMs: INTERVAL_MS, isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'the log of messages cannot be read for followers; tried again')
      const broken = client
      client = undefined
      void broken?.end().catch(() => undefined)
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isPokable: false }
    }
  }

  /** Ends the streams of those who may not follow any more. */
  async function sweep(): Promise<void> {
    await Promise.all(
      followers.all().map(async (follower) => {
        try {
          await follower.authorize()
        } catch (error) {
          const kind = kindOf(error)
          if (kind !== 'unauthenticated' && kind !== 'forbidden' && kind !== 'not_found') return
          follower.end('forbidden')
          followers.remove(follower)
        }
      }),
    )
  }

  function sweepLater(): void {
    sweeping ??= setTimeout(() => {
      void sweep().finally(() => {
        sweeping = undefined
        if (followers.size > 0 && !isStopped) sweepLater()
      })
    }, SWEEP_MS)
  }

  const rounds = startRounds(round)
  const hints = startLiveHints({
    bus,
    channels: followers.channels,
    onCommitted(batch) {
      if (batch !== undefined) recent.add(batch.seq, batch.messages, followers.state)
      rounds.poke()
    },
  })

  return {
    committing(batchSeq, messages) {
      if (followers.size === 0) return
      const followed = messages.flatMap((message, index) =>
        followers.channels.has(message.access.channelKey) ? [fromIncoming(message, batchSeq, index)] : [],
      )
      recent.add(batchSeq, followed, followers.state)
    },
    committed(batchSeq, messages) {
      if (followers.size > 0) rounds.poke()
      hints.committed(batchSeq, messages)
    },
    async follow(follower, after) {
      if (isStopped) throw new ServiceError('unavailable', 'the server is stopping', { retryAfterSeconds: 1 })
      followers.add(follower)
      hints.followed()
      sweepLater()
      const close = () => {
        follower.end('closed')
        followers.remove(follower)
      }
      if (after !== undefined) {
        catchUp(follower, after).catch((error: unknown) => {
          logger.warn({ err: error }, 'a follower of messages could not catch up')
          follower.end('behind')
          followers.remove(follower)
        })
        return { close }
      }
      try {
        await withDeadline(join(follower, undefined), JOIN_DEADLINE_MS, 'following the messages')
        return { close }
      } catch (error) {
        close()
        throw error
      }
    },
    get size() {
      return followers.size
    },
    get position() {
      return since === undefined ? undefined : tokenOf(since)
    },
    endAll() {
      isStopped = true
      followers.endAll('stopping')
    },
    async stop() {
      isStopped = true
      hints.close()
      clearTimeout(sweeping)
      followers.endAll('stopping')
      await rounds.stop()
      for (const { done } of joining) done(false)
      await client?.end().catch(() => undefined)
    },
  }
}

function batchOf(row: LogRow): StoredBatch {
  const { arrived_at: arrivedAt, envelopes } = row as { arrived_at: string; envelopes: string | null } & LogRow
  return { seq: row.position.seq, arrivedAt, envelopes }
}

function tokenOf(snapshot: LogSnapshot): LiveToken {
  return { snapshot, position: LOG_START }
}

/** As many batches as hold about what one step should. */
function nextStep(step: number, bytes: number): number {
  const fitting = Math.floor((step * CATCH_UP_BYTES) / Math.max(1, bytes))
  return Math.max(1, Math.min(CATCH_UP_BATCHES, step * 2, fitting))
}

/** Whether the snapshot saw what the transaction wrote. */
function saw({ xmax, running }: LogSnapshot, xid: bigint): boolean {
  return xid < BigInt(xmax) && !running.includes(String(xid))
}

/** All but the last message carry the token before them: only after the last one is nothing of the step missing. */
function deliverTo(follower: Follower, messages: readonly LiveMessage[], before: LiveToken, behind: LiveToken): void {
  const deliveries = messages.map((message, index): Delivery => ({
    message,
    token: index === messages.length - 1 ? behind : before,
  }))
  if (deliveries.length > 0) follower.deliver(deliveries)
}
