/**
 * `rule_calls`: messages that a function of a task decides about for a rule. The platform adds a row in the transaction that chooses the messages; a
 * manager starts the run of it, whose id is in the row, and writes what it returned. The platform takes that in the transaction that moves the rule. So
 * the next look finds what a killed process left, and each message is decided once.
 */
import type { Bus } from '#core/bus/index.ts'
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { TaskState } from '#proto/index.ts'
import type { TriggerMessage } from './trigger-message.ts'

const TABLE = 'rule_calls'
/** Calls that one manager looks at together; the domains of the due ones take turns. */
const MAX_UNDER_WAY = 50
/** The oldest due rows that are compared. */
const MAX_COMPARED = 20_000
/** The time after which another manager takes the rows of a dead one. */
const TAKEN_SECONDS = 30
/** The process that evaluates the rules of a domain has something to do. */
export const RULES_TOPIC = 'skein.rules'
/** Larger results are not read. */
const MAX_RESULT_BYTES = 1_048_576

/** Call it after the commit of new calls. May be called at any rate. */
export function hintRuleCalls(bus: Bus): void {
  hintQueue(bus, TABLE)
}

export type RuleCall = {
  ruleKey: number
  domainKey: number
  runId: string
  /** Of its first message: the batch and the number in it. */
  first: string
  /** Read for a call whose run was not started. */
  given: TriggerMessage[] | null
  /** null: it was deleted. */
  task: { key: number; id: string; domainId: string | null } | null
  /** null: it was not started, or was removed. */
  run: RunOfCall | null
}

export type RunOfCall = {
  key: number
  state: TaskState
  reason: string | null
  error: string | null
  /** null: none, or a large one. */
  results: unknown
  resultBytes: number | null
  /** It is stored apart. */
  resultDigest: string | null
}

/** `again`: the call is looked at later. The others end it. */
export type RuleCallFate =
  | { to: 'again'; afterSeconds: number }
  | { to: 'done'; results: unknown }
  | { to: 'failed' | 'refused'; reason: string }

export type RuleCallReaderOptions = {
  database: Database
  bus: Bus
  intervalMs: number
  work: (call: RuleCall) => Promise<RuleCallFate>
  onError: (error: unknown) => void
}

export function startRuleCallReader({ database, bus, intervalMs, work, onError }: RuleCallReaderOptions): {
  wake(): void
  stop(): Promise<void>
} {
  const busy = new Set<Promise<void>>()

  async function goOn(call: RuleCall): Promise<void> {
    const fate = await work(call)
    await settle(database.db, call, fate)
    if (fate.to !== 'again') bus.publish(RULES_TOPIC, Buffer.from(String(call.domainKey)))
  }

  const reader = startQueueReader({
    database,
    bus,
    table: TABLE,
    intervalMs,
    onError,
    async take() {
      if (busy.size >= MAX_UNDER_WAY) {
        await Promise.race(busy)
        return true
      }
      const room = MAX_UNDER_WAY - busy.size
      const calls = await takeDue(database.db, room)
      for (const call of calls) {
        const going = goOn(call)
          .catch(onError)
          .finally(() => busy.delete(going))
        busy.add(going)
      }
      return calls.length === room
    },
  })
  return {
    wake: reader.wake,
    async stop() {
      await reader.stop()
      await Promise.all(busy)
    },
  }
}

/** The runs have ended. */
export async function endedRuleCalls(db: Queryable, runIds: readonly string[]): Promise<void> {
  await sql`UPDATE rule_calls SET due_at = now() WHERE run_id = ANY (${[...runIds]}::uuid[]) AND status = 'open'`.execute(
    db,
  )
}

type Row = Omit<RuleCall, 'task' | 'run'> &
  Omit<RunOfCall, 'key'> & {
    taskKey: number | null
    taskId: string | null
    taskDomainId: string | null
    runKey: number | null
  }

/** Takes due rows. A row that another manager has locked is left to it. */
async function takeDue(db: Queryable, limit: number): Promise<RuleCall[]> {
  const bytes = sql`coalesce(r.result_bytes, octet_length(r.results::text))`
  const { rows } = await sql<Row>`WITH turns AS MATERIALIZED (
      SELECT rule_key FROM (
        SELECT rule_key, due_at, row_number() OVER (PARTITION BY domain_key ORDER BY due_at, rule_key) AS turn FROM (
          SELECT rule_key, domain_key, due_at FROM rule_calls WHERE due_at <= now() ORDER BY due_at, rule_key LIMIT ${MAX_COMPARED}) due) n
       ORDER BY turn, due_at LIMIT ${limit}),
    locked AS MATERIALIZED (SELECT q.rule_key FROM rule_calls q WHERE q.rule_key IN (SELECT rule_key FROM turns) AND q.due_at <= now()
      FOR UPDATE SKIP LOCKED),
    taken AS (UPDATE rule_calls q SET due_at = now() + make_interval(secs => ${TAKEN_SECONDS})
      FROM locked WHERE q.rule_key = locked.rule_key RETURNING q.*)
    SELECT taken.rule_key AS "ruleKey", taken.domain_key AS "domainKey", taken.run_id AS "runId",
      (taken.samples -> 0 ->> 0) || '/' || (taken.samples -> 0 ->> 1) AS first, CASE WHEN r.key IS NULL THEN taken.given END AS given,
      t.key AS "taskKey", t.id AS "taskId", t.domain_id AS "taskDomainId",
      r.key AS "runKey", r.state, r.reason, r.error, r.result_digest AS "resultDigest", ${bytes} AS "resultBytes",
      CASE WHEN ${bytes} <= ${MAX_RESULT_BYTES} THEN r.results END AS results
    FROM taken LEFT JOIN tasks t ON t.id = taken.task_id AND t.domain_key = taken.domain_key
      LEFT JOIN runs r ON r.id = taken.run_id AND r.task_key = t.key
    ORDER BY taken.rule_key`.execute(db)
  return rows.map(({ taskKey, taskId, taskDomainId, runKey, state, reason, error, results, resultBytes, ...row }) => {
    const { resultDigest, ...call } = row
    return {
      ...call,
      task: taskKey === null || taskId === null ? null : { key: taskKey, id: taskId, domainId: taskDomainId },
      run: runKey === null ? null : { key: runKey, state, reason, error, results, resultBytes, resultDigest },
    }
  })
}

/** A call that was replaced meanwhile, because the rule was changed, is not settled. */
async function settle(db: Queryable, { ruleKey, runId }: RuleCall, fate: RuleCallFate): Promise<void> {
  const isOurs = sql`rule_key = ${ruleKey} AND run_id = ${runId}::uuid AND status = 'open'`
  if (fate.to === 'again') {
    // What became due meanwhile stays so: its run has ended.
    await sql`UPDATE rule_calls SET due_at = now() + make_interval(secs => ${fate.afterSeconds}::float8)
      WHERE ${isOurs} AND due_at > clock_timestamp()`.execute(db)
    return
  }
  const results = fate.to === 'done' ? JSON.stringify(fate.results) : null
  const reason = fate.to === 'done' ? null : fate.reason
  await sql`UPDATE rule_calls SET status = ${fate.to}, results = ${results}::json, reason = ${reason}, due_at = 'infinity' WHERE ${isOurs}`.execute(
    db,
  )
}
