/**
 * Periodic work of sessions on every node, twice a second: writes positions, handles takeovers by other nodes, sends due wills, and
 * removes expired sessions.
 */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { LivingNode } from '#core/nodes/index.ts'
import { startRounds } from '#core/rounds.ts'
import type { Pause, Rounds } from '#core/rounds.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { removeEndedSessions, sendDueWills } from './due.ts'
import type { WillSender } from './due.ts'
import { claimGroups, heldGroups, partGroups, removeEmptyGroups } from './groups.ts'
import { writeSessionPositions } from './positions.ts'
import type { SessionPositions } from './positions.ts'
import type { GroupName, GroupRef, ServedGroup, SessionName } from './rows.ts'

const ROUND_MS = 500
const MAX_BACKOFF_MS = 5000
/** The part of the time after which a node is dead in which it serves groups without a sign of life: later, another node may take them. */
const LEASE_SHARE = 2 / 3
/** The interval of the search for groups without subscribers. */
const REMOVE_GROUPS_MS = 10_000

export type SessionMaintenanceOptions = {
  database: Database
  /** This process. */
  node: LivingNode
  logger: Logger
  sendWill: WillSender
  /** Another node has taken over these sessions. */
  onTakeover: (names: readonly SessionName[]) => void
  positions: () => SessionPositions
  /** The node was considered dead: others may have taken its sessions and groups, and sent its wills. */
  onDeclaredDead: () => void
  /** Groups with members on this node that are not assigned to it. */
  wantedGroups: () => readonly GroupName[]
  /** The groups assigned to this node, until `untilMs` of the monotonic clock, and the newly assigned ones. */
  onGroups: (groups: { held: readonly GroupRef[]; claimed: readonly ServedGroup[]; untilMs: number }) => void
  roundMs?: number
}

type Due = Record<'forgotten' | 'takeovers' | 'wills' | 'ends' | 'expired', boolean>

/** Planned once; each part reads the beginning of an index. */
const LOOK = {
  name: 'work-for-sessions',
  text: `SELECT NOT EXISTS (SELECT FROM nodes WHERE id = $1) AS forgotten,
      EXISTS (SELECT FROM mqtt_takeovers WHERE node = $1) AS takeovers,
      EXISTS (SELECT FROM mqtt_sessions WHERE will_due_at <= now()) AS wills,
      EXISTS (SELECT FROM mqtt_sessions WHERE ends_at <= now() AND will_due_at IS NULL) AS ends,
      EXISTS (SELECT FROM mqtt_retained WHERE expires_at <= now()) AS expired`,
}

export class SessionMaintenance {
  readonly #options: SessionMaintenanceOptions
  readonly #roundMs: number
  readonly #rounds: Rounds
  #backoffMs: number
  #groupsRemovedMs = monotonicMs()
  #holdsGroups = false

  constructor(options: SessionMaintenanceOptions) {
    const { roundMs = ROUND_MS, node, onDeclaredDead } = options
    this.#options = options
    this.#roundMs = roundMs
    this.#backoffMs = roundMs
    node.onDeclaredDead(onDeclaredDead)
    this.#rounds = startRounds(() => this.#round())
  }

  /** Starts a round now. */
  wake(): void {
    this.#rounds.wake()
  }

  /** Writes the positions of the sessions for the last time. */
  async stop(): Promise<void> {
    const { database, node, logger } = this.#options
    await this.#rounds.stop()
    await this.#writePositions({ isOwed: true }).catch((error: unknown) =>
      logger.warn({ err: error }, 'failed to store the positions of MQTT sessions'),
    )
    await database
      .transaction((tx) => partGroups(tx, node.id))
      .catch((error: unknown) => {
        node.keepRow()
        logger.warn({ err: error }, 'failed to release shared subscriptions')
      })
    // Sessions that are still marked as connected here are handled by other nodes, as those of a dead node.
    const { rows } = await sql<{ is_left: boolean }>`
      SELECT EXISTS (SELECT FROM mqtt_sessions WHERE node = ${node.id} AND is_connected) AS is_left`
      .execute(database.db)
      .catch(() => ({ rows: [] }))
    if (rows[0]?.is_left !== false) node.keepRow()
  }

  async #writePositions(options: { isOwed: boolean }): Promise<void> {
    await writeSessionPositions(this.#options.node, this.#options.positions(), options)
  }

  async #round(): Promise<Pause> {
    try {
      await this.#work()
      this.#backoffMs = this.#roundMs
      return { pauseMs: this.#roundMs, isWakeable: true }
    } catch (error) {
      this.#options.logger.warn({ err: error }, 'failed to maintain MQTT sessions; retrying')
      this.#backoffMs = Math.min(this.#backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: this.#backoffMs, isWakeable: false }
    }
  }

  async #work(): Promise<void> {
    const { database, sendWill } = this.#options
    const beganMs = monotonicMs()
    const due = await this.#lookForWork()
    await this.#writePositions({ isOwed: due.forgotten })
    if (due.takeovers) await this.#handleTakeovers()
    await this.#serveGroups()
    if (due.wills) await sendDueWills(database, sendWill)
    if (due.ends || due.wills) await removeEndedSessions(database)
    if (due.expired) await sql`DELETE FROM mqtt_retained WHERE expires_at <= now()`.execute(database.db)
    if (beganMs - this.#groupsRemovedMs < REMOVE_GROUPS_MS) return
    this.#groupsRemovedMs = beganMs
    await removeEmptyGroups(database)
  }

  /** Finds due work in one statement: most rounds of most nodes find none. */
  async #lookForWork(): Promise<Due> {
    const { database, node } = this.#options
    const { rows } = await database.db.query<Due>({ ...LOOK, values: [node.id] })
    return rows[0] as Due
  }

  async #handleTakeovers(): Promise<void> {
    const { database, node, onTakeover } = this.#options
    const { rows } = await sql<SessionName & { session_key: number }>`
      DELETE FROM mqtt_takeovers WHERE node = ${node.id} RETURNING session_key, epoch`.execute(database.db)
    if (rows.length > 0) onTakeover(rows.map(({ session_key: key, epoch }) => ({ key, epoch })))
  }

  async #serveGroups(): Promise<void> {
    const { database, node, wantedGroups, onGroups } = this.#options
    const wanted = wantedGroups()
    if (wanted.length === 0 && !this.#holdsGroups) return
    const untilMs = node.beatenAtMs + node.deadAfterMs * LEASE_SHARE
    const claimed = await claimGroups(database, node.id, wanted)
    const held = await heldGroups(database, node.id)
    this.#holdsGroups = held.length > 0
    onGroups({ held, claimed, untilMs })
  }
}
