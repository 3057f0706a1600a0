/**
 * What has to be done for sessions as time goes by, on every node, twice a second: say that the node lives and where it stands,
 * hear of sessions that others took over, send wills that are due, end sessions whose time is over, and clear away what a
 * node left that died.
 */
import type { Journal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { startRounds } from '#core/log/index.ts'
import type { Pause } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { claimGroups, heldGroups, partGroups, removeEmptyGroups, writeGroups } from './groups.ts'
import type { SessionFacts } from './happenings.ts'
import { recordHappening } from './happenings.ts'
import type {
  GroupName,
  GroupPosition,
  GroupRef,
  HeldGroup,
  SessionName,
  StoredWill,
  SubscriptionPosition,
} from './rows.ts'
import { writePositions } from './subscriptions.ts'
import { startWatch } from './watch.ts'
import { parseWill } from './wills.ts'

const ROUND_MS = 500
const MAX_BACKOFF_MS = 5000
/** A node that was not seen for so long is dead. */
const DEAD_AFTER_SECONDS = 15
/** A node that has nothing else to say says so often that it lives: each word is a commit, which a disk at rest need not have twice a second. */
const SAY_SHARE = 1 / 5
/** A node that could not say for so much of that time that it lives serves no group: another may be about to. */
const LEASE_SHARE = 2 / 3
/** Groups without subscribers are looked for so often. */
const REMOVE_GROUPS_MS = 10_000
/** Rows of one statement. */
const STEP_ROWS = 1000
/** Wills of one transaction, whose rows are locked while they are published. */
const WILLS_PER_STEP = 50

export type WillSender = (will: StoredWill, owner: { clientKey: number }) => Promise<void>

/** Where the sessions of a node stand: those to which nothing is under way with the node, the others for themselves. */
export type SessionPositions = {
  node: string | undefined
  moved: readonly (SubscriptionPosition & { session: SessionName })[]
  /** Messages that were sent exactly once and are behind the positions now. */
  done: readonly { session: SessionName; ordinal: number }[]
  /** Messages that sessions missed and were too many. */
  skipped: readonly { session: SessionName; messages: number }[]
  groups: readonly GroupPosition[]
  /** They could not be written: all of this is told again. */
  undo(): void
}

export type KeeperOptions = {
  database: Database
  journal: Journal
  node: string
  logger: Logger
  /** Publishes a will; resolves when it is stored or may not be sent any more. */
  sendWill: WillSender
  /** Another node took these sessions over. */
  onTakeover: (names: readonly SessionName[]) => void
  positions: () => SessionPositions
  /** The node was taken for dead: others may have its sessions, have sent their wills, and serve its groups. */
  onForgotten: () => void
  /** Groups that have members here, and that this node does not read for. */
  wantedGroups: () => readonly GroupName[]
  /** The groups that this node reads for, until then in monotonic milliseconds, and those of them that are new. */
  onGroups: (groups: { held: readonly GroupRef[]; claimed: readonly HeldGroup[]; untilMs: number }) => void
  roundMs?: number
  deadAfterSeconds?: number
}

export type SessionKeeper = {
  poke(): void
  /** Says where the sessions stand for the last time. */
  stop(): Promise<void>
}

type Due = Record<'forgotten' | 'takeovers' | 'dead' | 'wills' | 'ends' | 'expired', boolean>

/** Planned once; each is answered by the beginning of an index. */
const LOOK = {
  name: 'work-for-sessions',
  text: `SELECT NOT EXISTS (SELECT FROM mqtt_nodes WHERE node = $1) AS forgotten,
      EXISTS (SELECT FROM mqtt_takeovers WHERE node = $1) AS takeovers,
      EXISTS (SELECT FROM mqtt_nodes WHERE seen_at < now() - make_interval(secs => $2::float8)) AS dead,
      EXISTS (SELECT FROM mqtt_sessions WHERE will_due_at <= now()) AS wills,
      EXISTS (SELECT FROM mqtt_sessions WHERE ends_at <= now() AND will_due_at IS NULL) AS ends,
      EXISTS (SELECT FROM mqtt_retained WHERE expires_at <= now()) AS expired`,
}

export function startSessionKeeper(options: KeeperOptions): SessionKeeper {
  const { database, journal, node, logger, sendWill, onTakeover } = options
  const { roundMs = ROUND_MS, deadAfterSeconds = DEAD_AFTER_SECONDS } = options
  const { db } = database
  let backoffMs = roundMs
  /** When the node said last that it lives, and where it stood. */
  let said: { atMs: number; position: string | undefined } | undefined
  const mayJudge = startWatch(deadAfterSeconds * 1000, monotonicMs())
  let groupsRemovedMs = monotonicMs()
  let holdsGroups = false

  /** What was said a moment ago holds, and there is nothing to add. */
  function isSaid({ node: position, moved, done, skipped, groups }: SessionPositions, atMs: number): boolean {
    return (
      said !== undefined &&
      atMs - said.atMs < deadAfterSeconds * 1000 * SAY_SHARE &&
      position === said.position &&
      moved.length + done.length + skipped.length + groups.length === 0
    )
  }

  async function sayAlive({ isOwed }: { isOwed: boolean }): Promise<void> {
    const positions = options.positions()
    const atMs = monotonicMs()
    if (!isOwed && isSaid(positions, atMs)) return
    try {
      const isNew = await writeStanding(positions)
      if (isNew && said !== undefined) options.onForgotten()
      said = { atMs, position: positions.node }
    } catch (error) {
      positions.undo()
      throw error
    }
  }

  /** True where nobody knew of the node. */
  async function writeStanding({ node: position, ...told }: SessionPositions): Promise<boolean> {
    return await database.transaction(async (tx) => {
      const { rows } = await sql<{ is_new: boolean }>`
        INSERT INTO mqtt_nodes (node, position) VALUES (${node}, ${position ?? null})
        ON CONFLICT ON CONSTRAINT mqtt_nodes_pkey DO UPDATE SET seen_at = now(), position = EXCLUDED.position
        RETURNING xmax = 0 AS is_new`.execute(tx)
      // A session that was closed or taken over meanwhile stands where that was written: a word that comes late must not move it.
      const names = new Map([...told.moved, ...told.done, ...told.skipped].map(({ session }) => [session.key, session]))
      const owned = await lockSessions(tx, node, [...names.values()])
      const mine = <T extends { session: SessionName }>(one: T) =>
        owned.has(one.session.key) ? [{ ...one, sessionKey: one.session.key }] : []
      const [moved, done, skipped] = [told.moved.flatMap(mine), told.done.flatMap(mine), told.skipped.flatMap(mine)]
      await writePositions(tx, moved)
      if (skipped.length > 0) {
        await sql`
          UPDATE mqtt_sessions s SET skipped_messages = s.skipped_messages + missed.messages
            FROM (SELECT * FROM unnest(${skipped.map(({ sessionKey }) => sessionKey)}::bigint[], ${skipped.map(({ messages }) => messages)}::bigint[])
                    AS missed (key, messages) ORDER BY 1) missed WHERE s.key = missed.key`.execute(tx)
      }
      if (done.length > 0) {
        await sql`
          DELETE FROM mqtt_outbound WHERE (session_key, ordinal) IN (
            SELECT * FROM unnest(${done.map(({ sessionKey }) => sessionKey)}::bigint[], ${done.map(({ ordinal }) => ordinal)}::bigint[]))`.execute(
          tx,
        )
      }
      await writeGroups(tx, node, told.groups)
      return rows[0]?.is_new === true
    })
  }

  async function serveGroups(): Promise<void> {
    const wanted = options.wantedGroups()
    if (said === undefined || (wanted.length === 0 && !holdsGroups)) return
    const untilMs = said.atMs + deadAfterSeconds * 1000 * LEASE_SHARE
    const claimed = await claimGroups(database, node, wanted)
    const held = await heldGroups(database, node)
    holdsGroups = held.length > 0
    options.onGroups({ held, claimed, untilMs })
  }

  /** What there is to do, in one statement: most rounds of most nodes find nothing. */
  async function lookForWork(): Promise<Due> {
    const { rows } = await db.query<Due>({ ...LOOK, values: [node, deadAfterSeconds] })
    return rows[0] as Due
  }

  async function hearTakeovers(): Promise<void> {
    const { rows } = await sql<SessionName & { session_key: number }>`
      DELETE FROM mqtt_takeovers WHERE node = ${node} RETURNING session_key, epoch`.execute(db)
    if (rows.length > 0) onTakeover(rows.map(({ session_key: key, epoch }) => ({ key, epoch })))
  }

  async function sendWills(): Promise<void> {
    for (let sent = WILLS_PER_STEP; sent === WILLS_PER_STEP;) {
      sent = await database.transaction(async (tx) => {
        const { rows } = await sql<{ key: number; client_key: number; will: unknown; will_payload: Buffer | null }>`
          SELECT key, client_key, will, will_payload FROM mqtt_sessions WHERE will_due_at <= now()
           ORDER BY key LIMIT ${WILLS_PER_STEP} FOR UPDATE SKIP LOCKED`.execute(tx)
        if (rows.length === 0) return 0
        await Promise.all(
          rows.map(async (row) => {
            const will = parseWill(row.will, row.will_payload)
            if (will !== undefined) await sendWill(will, { clientKey: row.client_key })
          }),
        )
        await sql`UPDATE mqtt_sessions SET will = NULL, will_payload = NULL, will_due_at = NULL
          WHERE key = ANY (${rows.map(({ key }) => key)}::bigint[])`.execute(tx)
        return rows.length
      })
    }
  }

  async function endSessions(): Promise<void> {
    for (let ended = STEP_ROWS; ended === STEP_ROWS;) {
      const { numAffectedRows = 0n } = await sql`
        DELETE FROM mqtt_sessions WHERE key IN (
          SELECT key FROM mqtt_sessions WHERE ends_at <= now() AND will_due_at IS NULL
           ORDER BY key LIMIT ${STEP_ROWS} FOR UPDATE SKIP LOCKED)`.execute(db)
      ended = Number(numAffectedRows)
    }
  }

  async function removeExpired(): Promise<void> {
    await sql`DELETE FROM mqtt_retained WHERE expires_at <= now()`.execute(db)
  }

  /** Its sessions lost their connections: subscriptions stand where it stood, wills and ends are counted from now on. */
  async function clearDeadNodes(): Promise<void> {
    await journal.change('system', async (tx, record) => {
      const { rows } = await sql<{ node: string; position: string | null }>`
        SELECT node, position FROM mqtt_nodes WHERE seen_at < now() - make_interval(secs => ${deadAfterSeconds})
         ORDER BY node FOR UPDATE SKIP LOCKED`.execute(tx)
      for (const dead of rows) {
        // In the order of every writer: sessions, then what belongs to them.
        await sql`SELECT FROM mqtt_sessions WHERE node = ${dead.node} AND is_connected ORDER BY key FOR UPDATE`.execute(
          tx,
        )
        await sql`
          UPDATE mqtt_subscriptions u SET position = ${dead.position} FROM mqtt_sessions s
           WHERE s.key = u.session_key AND s.node = ${dead.node} AND s.is_connected AND u.position IS NULL`.execute(tx)
        const { rows: lost } = await sql<SessionFacts>`
          UPDATE mqtt_sessions s SET is_connected = false, disconnected_at = now(), ends_at = now() + make_interval(secs => expiry_seconds),
                 will_due_at = CASE WHEN will IS NULL THEN NULL
                   ELSE now() + make_interval(secs => least((will->>'delaySeconds')::float8, expiry_seconds)) END
            FROM clients c WHERE c.key = s.client_key AND node = ${dead.node} AND is_connected
          RETURNING s.client_key, s.client_identifier, c.id AS client_id, c.domain_key`.execute(tx)
        for (const session of lost) recordHappening(record, 'disconnect', session, dead.node)
        await partGroups(tx, dead.node)
        await sql`DELETE FROM mqtt_takeovers WHERE node = ${dead.node}`.execute(tx)
        await sql`DELETE FROM mqtt_nodes WHERE node = ${dead.node}`.execute(tx)
      }
    })
  }

  async function round(): Promise<Pause> {
    try {
      const beganMs = monotonicMs()
      const due = await lookForWork()
      await sayAlive({ isOwed: due.forgotten })
      if (due.takeovers) await hearTakeovers()
      if (mayJudge(monotonicMs()) && due.dead) await clearDeadNodes()
      await serveGroups()
      if (due.wills) await sendWills()
      // A session whose time is over ends once its will is sent.
      if (due.ends || due.wills) await endSessions()
      if (due.expired) await removeExpired()
      if (beganMs - groupsRemovedMs >= REMOVE_GROUPS_MS) {
        groupsRemovedMs = beganMs
        await removeEmptyGroups(database)
      }
      backoffMs = roundMs
      return { pauseMs: roundMs, isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'the sessions of MQTT cannot be kept; tried again')
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isPokable: false }
    }
  }

  const rounds = startRounds(round)
  return {
    poke: () => rounds.poke(),
    async stop() {
      await rounds.stop()
      await sayAlive({ isOwed: true }).catch((error: unknown) =>
        logger.warn({ err: error }, 'the positions of MQTT were not written'),
      )
      await database
        .transaction((tx) => partGroups(tx, node))
        .catch((error: unknown) => logger.warn({ err: error }, 'shared subscriptions were not given up'))
      // What still counts as connected here is looked after by the others, as of a node that died.
      await sql`DELETE FROM mqtt_nodes n WHERE node = ${node}
          AND NOT EXISTS (SELECT FROM mqtt_sessions s WHERE s.node = n.node AND s.is_connected)`
        .execute(db)
        .catch(() => undefined)
    },
  }
}

/** Those that are still of these connections; none is closed or taken over before the end of the transaction. */
async function lockSessions(tx: Transaction, node: string, names: readonly SessionName[]): Promise<Set<number>> {
  if (names.length === 0) return new Set()
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM mqtt_sessions
     WHERE node = ${node} AND is_connected AND (key, epoch) IN (SELECT * FROM unnest(${names.map(({ key }) => key)}::bigint[], ${names.map(({ epoch }) => epoch)}::bigint[]))
     ORDER BY key FOR SHARE`.execute(tx)
  return new Set(rows.map(({ key }) => key))
}
