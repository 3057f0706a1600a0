/**
 * Signs of life. In memory each session counts on the monotonic clock; the database gets one statement per second, in
 * its own time. A worker is dead when its lease has ended here and there, and only after this manager has been up, with
 * its database reachable, for a whole lease: time in which the manager stood still counts against nobody.
 */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import type { Cluster } from '../dispatch/cluster.ts'
import type { WorkerSession } from '../dispatch/worker-session.ts'
import type { RunWriter } from '../runs/writer.ts'
import { heartbeatIntervalMs, leaseMs, type ManagerTiming } from '../timing.ts'

/** Signs of life that a worker's record shows. */
const SHOWN_BEATS = 10
/** A worker is suspect after so many missed beats. */
const MISSED_BEATS = 2
/** A tick that comes later than this says that the process stood still. */
const STANDSTILL_FACTOR = 3

export type LeaseKeeperDeps = {
  database: Database
  cluster: Cluster
  writer: RunWriter
  timing: ManagerTiming
  managerId: string
  logger: Logger
}

export type LeaseKeeper = ReturnType<typeof startLeaseKeeper>

export function startLeaseKeeper({ database, cluster, writer, timing, managerId, logger }: LeaseKeeperDeps) {
  const beaten = new Set<WorkerSession>()
  let reachableSinceMs = monotonicMs()
  let lastTickMs = monotonicMs()
  let running: Promise<void> = Promise.resolve()
  let isBusy = false

  const interval = () => heartbeatIntervalMs(timing, cluster.size)
  const lease = () => leaseMs(timing, interval())

  const timer = setInterval(() => {
    const nowMs = monotonicMs()
    const stoodStillMs = nowMs - lastTickMs - timing.leaseWriteIntervalMs
    lastTickMs = nowMs
    if (stoodStillMs > STANDSTILL_FACTOR * timing.leaseWriteIntervalMs) {
      for (const session of cluster.sessions) session.lastBeatMs += stoodStillMs
      reachableSinceMs = nowMs
    }
    markSuspects(nowMs)
    if (isBusy) return
    isBusy = true
    running = tick().finally(() => {
      isBusy = false
    })
  }, timing.leaseWriteIntervalMs)

  function markSuspects(nowMs: number): void {
    const limitMs = (MISSED_BEATS + 0.5) * interval()
    for (const session of cluster.sessions) {
      const isSuspect = nowMs - session.lastBeatMs > limitMs
      if (isSuspect === session.isSuspect) continue
      session.isSuspect = isSuspect
      cluster.changed()
    }
  }

  async function tick(): Promise<void> {
    try {
      await writeBeats()
      if (monotonicMs() - reachableSinceMs > lease()) await loseTheSilent()
    } catch (error) {
      reachableSinceMs = monotonicMs()
      logger.warn({ err: error }, 'the signs of life of the workers could not be written')
    }
  }

  async function writeBeats(): Promise<void> {
    if (beaten.size === 0) return
    const sessions = [...beaten].toSorted((left, right) => left.key - right.key)
    beaten.clear()
    const { rows } = await sql<{ key: number; draining: boolean }>`UPDATE workers w SET last_alive_at = now(),
        lease_until = now() + make_interval(secs => ${lease() / 1000}::float8),
        alive_history = (w.alive_history || now())[greatest(array_length(w.alive_history, 1) - ${SHOWN_BEATS - 2}, 1):]
      FROM unnest(${sessions.map((session) => session.key)}::bigint[], ${sessions.map((session) => session.epoch)}::bigint[]) AS b (key, epoch)
      WHERE w.key = b.key AND w.session_epoch = b.epoch
      RETURNING w.key, w.draining`.execute(database.db)
    const draining = new Map(rows.map((row) => [row.key, row.draining]))
    for (const session of sessions) followRow(session, draining.get(session.key))
  }

  /** What another manager was asked for: draining; undefined: the worker registered anew elsewhere, or was removed. */
  function followRow(session: WorkerSession, isDrainAsked: boolean | undefined): void {
    if (isDrainAsked === undefined) cluster.remove(session)
    else if (isDrainAsked !== session.isDrainAsked) {
      session.askDrain(isDrainAsked)
      cluster.changed()
    }
  }

  async function loseTheSilent(): Promise<void> {
    const { rows } = await sql<{ key: number; session_epoch: number; name: string }>`
      SELECT key, session_epoch, name FROM workers
      WHERE manager_id IS NOT NULL AND lease_until < now() - make_interval(secs => ${graceMs() / 1000}::float8)
        OR manager_id = ${managerId} AND lease_until < now()
      ORDER BY key LIMIT 100`.execute(database.db)
    for (const row of rows) {
      const session = cluster.find(row.key)
      if (session !== undefined && monotonicMs() - session.lastBeatMs < lease()) continue
      if (await writer.lose(row.key, row.session_epoch))
        logger.warn({ worker: row.name }, 'a worker is lost: its lease ended')
    }
  }

  /** A worker of another manager: that one goes first. */
  const graceMs = () => 2 * timing.leaseWriteIntervalMs

  return {
    intervalMs: interval,
    leaseMs: lease,
    beat(session: WorkerSession): void {
      session.lastBeatMs = monotonicMs()
      beaten.add(session)
      if (!session.isSuspect) return
      session.isSuspect = false
      cluster.changed()
    },
    async stop(): Promise<void> {
      clearInterval(timer)
      await running
    },
  }
}
