/**
 * Heartbeats and leases. In memory each session is timed by the monotonic clock; the database gets one statement per
 * second, in its own time. A worker is dead when its lease has expired in both, and only after this manager has run with
 * a reachable database for a whole lease: time in which the manager was suspended does not count.
 */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import type { Cluster } from '../placement/cluster.ts'
import { WORKER_METRICS } from '../placement/metrics.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import type { RunWriter } from '../writer/writer.ts'
import { heartbeatIntervalMs, leaseMs, type ManagerTiming } from '../model/timing.ts'

/** Number of heartbeat times in a worker's record. */
const SHOWN_BEATS = 10
/** A worker becomes suspect after this many missed heartbeats. */
const MISSED_BEATS = 2
/** A later tick means that the process was suspended. */
const STANDSTILL_FACTOR = 3

export type LeaseMonitorDeps = {
  database: Database
  cluster: Cluster
  writer: RunWriter
  timing: ManagerTiming
  managerId: string
  logger: Logger
}

export class LeaseMonitor {
  readonly #deps: LeaseMonitorDeps
  /** Workers with a heartbeat since the last write. */
  readonly #beaten = new Set<WorkerSession>()
  readonly #timer: NodeJS.Timeout
  /** The database has been reachable since then. */
  #reachableSinceMs = monotonicMs()
  #lastTickMs = monotonicMs()
  #writing: Promise<void> | undefined

  constructor(deps: LeaseMonitorDeps) {
    this.#deps = deps
    this.#timer = setInterval(() => this.#tick(), deps.timing.leaseWriteIntervalMs)
  }

  /** The heartbeat interval. */
  intervalMs(): number {
    return heartbeatIntervalMs(this.#deps.timing, this.#deps.cluster.size)
  }

  leaseMs(): number {
    return leaseMs(this.#deps.timing, this.intervalMs())
  }

  /** Records a sign of life of the worker. */
  beat(session: WorkerSession): void {
    session.lastBeatMs = monotonicMs()
    this.#beaten.add(session)
    if (!session.isSuspect) return
    session.isSuspect = false
    this.#deps.cluster.changed()
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer)
    await this.#writing
  }

  #tick(): void {
    const { cluster, timing } = this.#deps
    const nowMs = monotonicMs()
    const stoodStillMs = nowMs - this.#lastTickMs - timing.leaseWriteIntervalMs
    this.#lastTickMs = nowMs
    if (stoodStillMs > STANDSTILL_FACTOR * timing.leaseWriteIntervalMs) {
      for (const session of cluster.sessions) session.lastBeatMs += stoodStillMs
      this.#reachableSinceMs = nowMs
    }
    this.#markSuspects(nowMs)
    this.#writing ??= this.#write().finally(() => {
      this.#writing = undefined
    })
  }

  #markSuspects(nowMs: number): void {
    const { cluster } = this.#deps
    const limitMs = (MISSED_BEATS + 0.5) * this.intervalMs()
    for (const session of cluster.sessions) {
      const isSuspect = nowMs - session.lastBeatMs > limitMs
      if (isSuspect === session.isSuspect) continue
      session.isSuspect = isSuspect
      cluster.changed()
    }
  }

  async #write(): Promise<void> {
    try {
      await this.#writeBeats()
      if (monotonicMs() - this.#reachableSinceMs > this.leaseMs()) await this.#expireLeases()
    } catch (error) {
      this.#reachableSinceMs = monotonicMs()
      this.#deps.logger.warn({ err: error }, 'failed to write heartbeats; retrying')
    }
  }

  async #writeBeats(): Promise<void> {
    if (this.#beaten.size === 0) return
    const sessions = [...this.#beaten].toSorted((left, right) => left.key - right.key)
    this.#beaten.clear()
    const drainCalls = new Map(sessions.map((session) => [session, session.drainCalls]))
    const { rows } = await sql<{ key: number; draining: boolean }>`UPDATE workers w SET last_alive_at = now(),
        lease_until = now() + make_interval(secs => ${this.leaseMs() / 1000}::float8),
        alive_history = (w.alive_history || now())[greatest(array_length(w.alive_history, 1) - ${SHOWN_BEATS - 2}, 1):]
      FROM unnest(${sessions.map((session) => session.key)}::bigint[], ${sessions.map((session) => session.epoch)}::bigint[]) AS b (key, epoch)
      WHERE w.key = b.key AND w.session_epoch = b.epoch
      RETURNING w.key, w.draining`.execute(this.#deps.database.db)
    const draining = new Map(rows.map((row) => [row.key, row.draining]))
    for (const session of sessions) {
      const isDrainAsked = draining.get(session.key)
      if (isDrainAsked === undefined || session.drainCalls === drainCalls.get(session))
        this.#followRow(session, isDrainAsked)
    }
  }

  /**
   * Applies a drain that another manager received; undefined: the worker registered at another manager, or was removed.
   */
  #followRow(session: WorkerSession, isDrainAsked: boolean | undefined): void {
    const { cluster } = this.#deps
    if (isDrainAsked === undefined) cluster.remove(session)
    else if (isDrainAsked !== session.isDrainAsked) {
      session.sendDrain(isDrainAsked)
      cluster.changed()
    }
  }

  async #expireLeases(): Promise<void> {
    const { cluster, database, logger, managerId, writer } = this.#deps
    const { rows } = await sql<{ key: number; session_epoch: number; name: string }>`
      SELECT key, session_epoch, name FROM workers
      WHERE manager_id IS NOT NULL AND lease_until < now() - make_interval(secs => ${this.#graceMs() / 1000}::float8)
        OR manager_id = ${managerId} AND lease_until < now()
      ORDER BY key LIMIT 100`.execute(database.db)
    for (const row of rows) {
      const session = cluster.find(row.key)
      if (session !== undefined && monotonicMs() - session.lastBeatMs < this.leaseMs()) continue
      if (await writer.expireLease(row.key, row.session_epoch)) {
        WORKER_METRICS.leaseLosses.add({})
        logger.warn({ worker: row.name }, 'lease of a worker expired; requeueing its runs')
      }
    }
  }

  /** The manager of a worker handles its expiry first. */
  #graceMs(): number {
    return 2 * this.#deps.timing.leaseWriteIntervalMs
  }
}
