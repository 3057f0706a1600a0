/**
 * `command_runs`: commands that a task answers instead of their client. The platform adds a row in the transaction of the command; a manager
 * starts its run, which has the id of the command, and writes the end of the run to the command. A row stays until both have ended, so the
 * next look finds what a killed process left. A command that was deleted, with its client, has ended.
 */
import type { Bus } from '#core/bus/index.ts'
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import { isOutage } from '#core/database/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { DescribedExport } from '#guests/wasm/index.ts'
import type { TaskState } from '#proto/index.ts'

const TABLE = 'command_runs'
/** Rows that are taken together; the domains of the due rows take turns. */
const MAX_OF_STEP = 50
/** No more are taken while commands of as many domains are under way, each in a step of its own. */
const MAX_DOMAINS = 16
/**
 * Of the tasks that answer commands of one name, the oldest ones for the client and the oldest ones for several are compared, so that each command costs a
 * bounded time.
 */
const MAX_ANSWERING = 100
/** The oldest due rows that are compared. */
const MAX_COMPARED = 20_000
/** The time after which another manager takes the rows of a dead one. */
const TAKEN_SECONDS = 30
/** A command that ended while its step was under way is looked at again after this time. */
const ENDED_SECONDS = 0.2
/** Larger results are not read: those of commands have half of it, and the error output of a program may be beside it. */
const MAX_RESULT_BYTES = 131_072

/** The commands that a task answers, of those clients of its domain for which everything applies that is given. */
export type Answers = { command: string; client_id?: string; group?: string; tag?: string }

/**
 * The id of the task that answers the command with this name to a client; NULL: the client does. Of several, the most specific one; of equal
 * ones, the oldest. `client` is the alias of a row of `clients`.
 */
export function answeringTask(client: string, name: Sql): Sql {
  const column = (of: string) => sql.ref(`${client}.${of}`)
  const is = (field: string, condition: Sql) =>
    sql`(t.answers ->> ${sql.raw(`'${field}'`)} IS NULL OR t.answers ->> ${sql.raw(`'${field}'`)} ${condition})`
  const group = sql`(SELECT g.id::text FROM groups g WHERE g.key = ${column('parent_group_key')})`
  const oldest = (
    condition: Sql,
  ) => sql`(SELECT n.id, n.key, n.answers FROM tasks n WHERE n.domain_key = ${column('domain_key')} AND n.answers IS NOT NULL
        AND n.answers ->> 'command' = ${name} AND n.answers ->> 'client_id' ${condition} ORDER BY n.key LIMIT ${MAX_ANSWERING})`
  return sql`(SELECT t.id FROM (${oldest(sql`= ${column('id')}::text`)} UNION ALL ${oldest(sql`IS NULL`)}) t
      WHERE ${is('group', sql`= ${group}`)} AND ${is('tag', sql`= ANY (${column('tags')})`)}
    ORDER BY t.answers ->> 'client_id' IS NULL, t.answers ->> 'group' IS NULL, t.answers ->> 'tag' IS NULL, t.key LIMIT 1)`
}

/** Hands the commands of `given` (key, id, task_id, domain_key) that tasks answer to the managers, in the statement that inserts them. */
export const handCommands = (
  given: string,
): Sql => sql`INSERT INTO command_runs (command_key, command_id, task_id, domain_key)
  SELECT key, id, task_id, domain_key FROM ${sql.table(given)} WHERE task_id IS NOT NULL`

/** The command has ended otherwise: a manager stops its run. */
export async function releaseCommandRun(tx: Transaction, commandKey: number): Promise<void> {
  await sql`UPDATE command_runs SET due_at = now() WHERE command_key = ${commandKey} AND due_at > now()`.execute(tx)
}

/** What waits for the end of a pause of the task becomes due. */
export async function releaseCommandsOf(tx: Transaction, taskKey: number): Promise<void> {
  await sql`UPDATE command_runs q SET due_at = now() FROM tasks t
    WHERE t.key = ${taskKey} AND q.task_id = t.id AND q.due_at > now()`.execute(tx)
}

/** Call it after the commit of rows that are due. May be called at any rate. */
export function hintCommandRuns(bus: Bus): void {
  hintQueue(bus, TABLE)
}

/** These commands can go on: their runs have ended, or what their starts waited for has. */
export async function makeCommandRunsDue(db: Queryable, commandKeys: readonly number[]): Promise<void> {
  await sql`UPDATE command_runs SET due_at = now() WHERE command_key = ANY (${[...commandKeys]}::bigint[])`.execute(db)
}

/** A command with its task and its run, as they are now. */
export type CommandRun = {
  commandKey: number
  domainKey: number
  id: string
  clientId: string
  name: string
  /** Read for a command whose run was not started. */
  payload: unknown
  hasPayload: boolean
  createdAt: string
  expiresAt: string
  isEnded: boolean
  /** Since it ended; null: it is open, or was deleted. */
  endedSeconds: number | null
  /** Since it was delivered; 0: it was not. */
  deliveredSeconds: number
  /** Until it ends without an answer. */
  leftSeconds: number
  /** null: it was deleted. */
  task: AnsweringTask | null
  /** null: it was not started, or was removed. */
  run: RunOfCommand | null
}

export type AnsweringTask = {
  taskKey: number
  taskId: string
  taskName: string
  domainId: string | null
  userKey: number | null
  isPaused: boolean
  /** What it answers; null: nothing any more. */
  answers: Answers | null
  function: string | null
  /** The task's own inputs. */
  inputs: unknown[]
  /** Exports of its module, if known. */
  exports: DescribedExport[] | null
}

export type RunOfCommand = {
  runKey: number
  state: TaskState
  reason: string | null
  error: string | null
  /** null: none, or a large one. */
  results: unknown
  resultBytes: number | null
  /** It is stored apart. */
  resultDigest: string | null
}

/** `again`: the command is looked at later. `end`: it ends. `late`: the run has answered after the end. `none`: nothing is left to do. */
export type CommandFate =
  | { to: 'again'; afterSeconds: number; isStarted?: boolean }
  | { to: 'end'; status: CommandEnd; isDelivered: boolean; result?: string | undefined; reason?: string | undefined }
  | { to: 'late'; status: CommandEnd }
  | { to: 'none' }

export type CommandEnd = 'succeeded' | 'failed' | 'rejected'

/** A transition of a command, for its record in the journal. */
export type CommandTransition = {
  operation: 'deliver' | 'answer' | 'late'
  id: string
  clientKey: number
  clientId: string
  domainKey: number
  name: string
  status: string
}

const TRANSITION = sql`m.id, m.client_key AS "clientKey", c.id AS "clientId", c.domain_key AS "domainKey", m.name, m.status`

export type CommandReaderOptions = {
  database: Database
  bus: Bus
  intervalMs: number
  /** Returns one fate per command, in order. */
  work: (commands: readonly CommandRun[]) => Promise<readonly CommandFate[]>
  /** Writes the records of the transitions, in their transaction. */
  record: (tx: Transaction, transitions: readonly CommandTransition[]) => Promise<void>
  /** Called after the commit of transitions. */
  onChanged: () => void
  onError: (error: unknown) => void
}

export type CommandReader = {
  wake(): void
  /** Writes what becomes of a command that `work` has left for later. A failure is reported: the command is looked at again. */
  settle(commandKey: number, fate: CommandFate): Promise<void>
  stop(): Promise<void>
}

export function startCommandReader({
  database,
  bus,
  intervalMs,
  work,
  record,
  onChanged,
  onError,
}: CommandReaderOptions): CommandReader {
  async function settle(settled: readonly Settled[]): Promise<void> {
    const count = await database.transaction(async (tx) => {
      const transitions = await write(tx, settled)
      if (transitions.length > 0) await record(tx, transitions)
      return transitions.length
    })
    if (count > 0) onChanged()
  }

  /** A result that the database refuses ends its command, and delays no other one. */
  async function settleAlone(one: Settled): Promise<void> {
    try {
      await settle([one])
    } catch (error) {
      if (isOutage(error) || one.fate.to !== 'end' || one.fate.result === undefined) throw error
      const { status: _status, result: _result, ...fate } = one.fate
      await settle([{ ...one, fate: { ...fate, status: 'failed', reason: 'the result of the task cannot be stored' } }])
    }
  }

  async function goOn(commands: readonly CommandRun[]): Promise<void> {
    const fates = await work(commands)
    const settled = commands.map(({ commandKey }, index) => ({
      commandKey,
      fate: fates[index] ?? { to: 'again' as const, afterSeconds: 1 },
    }))
    try {
      await settle(settled)
    } catch (error) {
      // They are taken again.
      if (isOutage(error)) throw error
      onError(error)
      for (const one of settled) await settleAlone(one)
    }
  }

  /** What is under way, by the key of its domain. */
  const busy = new Map<number, Promise<void>>()
  const reader = startQueueReader({
    database,
    bus,
    table: TABLE,
    intervalMs,
    onError,
    async take() {
      if (busy.size >= MAX_DOMAINS) {
        await Promise.race(busy.values())
        return true
      }
      const commands = await takeDue(database.db, [...busy.keys()])
      for (const [domainKey, ofDomain] of Map.groupBy(commands, (command) => command.domainKey)) {
        const step = goOn(ofDomain)
          .catch(onError)
          .finally(() => {
            busy.delete(domainKey)
            reader.wake()
          })
        busy.set(domainKey, step)
      }
      return commands.length === MAX_OF_STEP
    },
  })
  return {
    wake: reader.wake,
    async settle(commandKey, fate) {
      await settleAlone({ commandKey, fate }).catch(onError)
    },
    async stop() {
      await reader.stop()
      await Promise.all(busy.values())
    },
  }
}

type Row = Omit<CommandRun, 'task' | 'run'> &
  Omit<AnsweringTask, 'taskKey'> &
  Omit<RunOfCommand, 'runKey'> & { taskKey: number | null; runKey: number | null }

/** Takes due rows of other domains than these. A row that another manager has locked is left to it. */
async function takeDue(db: Queryable, busy: readonly number[]): Promise<CommandRun[]> {
  const bytes = sql`coalesce(r.result_bytes, octet_length(r.results::text))`
  const { rows } = await sql<Row>`WITH turns AS MATERIALIZED (
      SELECT command_key FROM (
        SELECT command_key, due_at, row_number() OVER (PARTITION BY domain_key ORDER BY due_at, command_key) AS turn FROM (
          SELECT command_key, domain_key, due_at FROM command_runs WHERE due_at <= now() AND domain_key <> ALL (${[...busy]}::bigint[])
            ORDER BY due_at, command_key LIMIT ${MAX_COMPARED}) due) n
       ORDER BY turn, due_at LIMIT ${MAX_OF_STEP}),
    locked AS MATERIALIZED (SELECT q.command_key FROM command_runs q WHERE q.command_key IN (SELECT command_key FROM turns) AND q.due_at <= now()
      FOR UPDATE SKIP LOCKED),
    taken AS (UPDATE command_runs q SET due_at = now() + make_interval(secs => ${TAKEN_SECONDS})
      FROM locked WHERE q.command_key = locked.command_key RETURNING q.command_key, q.command_id, q.task_id, q.domain_key)
    SELECT taken.command_key AS "commandKey", taken.domain_key AS "domainKey", taken.command_id AS id, c.id AS "clientId", m.name, CASE WHEN m.ended_at IS NULL AND r.key IS NULL THEN m.payload END AS payload, m.payload IS NOT NULL AS "hasPayload",
      m.created_at AS "createdAt", m.expires_at AS "expiresAt", m.key IS NULL OR m.ended_at IS NOT NULL AS "isEnded", extract(epoch FROM clock_timestamp() - m.ended_at)::float8 AS "endedSeconds",
      coalesce(extract(epoch FROM clock_timestamp() - m.delivered_at), 0)::float8 AS "deliveredSeconds",
      extract(epoch FROM m.due_at - clock_timestamp())::float8 AS "leftSeconds",
      t.key AS "taskKey", t.id AS "taskId", t.name AS "taskName", t.domain_id AS "domainId", t.user_key AS "userKey",
      t.paused_at IS NOT NULL AS "isPaused", t.answers, t.function, t.inputs, d.exports,
      r.key AS "runKey", r.state, r.reason, r.error, r.result_digest AS "resultDigest", ${bytes} AS "resultBytes",
      CASE WHEN m.key IS NOT NULL AND m.ended_at IS NULL AND ${bytes} <= ${MAX_RESULT_BYTES} THEN r.results END AS results
    FROM taken LEFT JOIN device_commands m ON m.key = taken.command_key LEFT JOIN clients c ON c.key = m.client_key
      LEFT JOIN tasks t ON t.id = taken.task_id LEFT JOIN modules d ON d.key = t.module_key
      LEFT JOIN runs r ON r.id = taken.command_id AND r.task_key = t.key
    ORDER BY taken.command_key`.execute(db)
  return rows.map(fromRow)
}

function fromRow(row: Row): CommandRun {
  const { taskKey, taskId, taskName, domainId, userKey, isPaused, answers, inputs, exports, ...rest } = row
  const { function: explicit, runKey, state, reason, error, results, resultBytes, resultDigest, ...command } = rest
  const task = { taskId, taskName, domainId, userKey, isPaused, answers, function: explicit, inputs, exports }
  return {
    ...command,
    task: taskKey === null ? null : { taskKey, ...task },
    run: runKey === null ? null : { runKey, state, reason, error, results, resultBytes, resultDigest },
  }
}

type Settled = { commandKey: number; fate: CommandFate }

/** Writes the fates. Returns the transitions of the commands. */
async function write(tx: Transaction, settled: readonly Settled[]): Promise<CommandTransition[]> {
  const keysOf = (of: readonly Settled[]) => of.map(({ commandKey }) => commandKey)
  // In one order, so that two processes do not wait for each other.
  await sql`SELECT key FROM device_commands WHERE key = ANY (${keysOf(settled)}::bigint[]) ORDER BY key FOR NO KEY UPDATE`.execute(
    tx,
  )
  const transitions: CommandTransition[] = []
  const started = settled.filter(({ fate }) => fate.to === 'again' && fate.isStarted === true)
  if (started.length > 0) transitions.push(...(await markStarted(tx, keysOf(started))))
  const ending = settled.flatMap(({ commandKey, fate }) => (fate.to === 'end' ? [{ commandKey, ...fate }] : []))
  const ended = ending.length === 0 ? [] : await endCommands(tx, ending)
  transitions.push(...ended.map(({ transition }) => transition))
  const late = settled.flatMap(({ commandKey, fate }) => (fate.to === 'late' ? [{ commandKey, ...fate }] : []))
  if (late.length > 0) transitions.push(...(await recordLateEnds(tx, late)))

  const over = new Set(ended.map(({ commandKey }) => commandKey))
  const done = settled.filter(
    ({ commandKey, fate }) => fate.to === 'none' || fate.to === 'late' || over.has(commandKey),
  )
  if (done.length > 0)
    await sql`DELETE FROM command_runs WHERE command_key = ANY (${keysOf(done)}::bigint[])`.execute(tx)
  const again = settled.flatMap(({ commandKey, fate }) => {
    if (fate.to === 'again') return [{ commandKey, afterSeconds: fate.afterSeconds }]
    return fate.to === 'end' && !over.has(commandKey) ? [{ commandKey, afterSeconds: ENDED_SECONDS }] : []
  })
  // What became due meanwhile stays so: it was cancelled, its run has ended, or the pause of its task.
  if (again.length > 0)
    await sql`UPDATE command_runs q SET due_at = now() + make_interval(secs => n.seconds)
      FROM unnest(${again.map(({ commandKey }) => commandKey)}::bigint[], ${again.map(({ afterSeconds }) => afterSeconds)}::float8[]) AS n (key, seconds)
      WHERE q.command_key = n.key AND q.due_at > clock_timestamp()`.execute(tx)
  return transitions
}

/** The run of a command was started: its timeout begins. */
async function markStarted(tx: Transaction, keys: readonly number[]): Promise<CommandTransition[]> {
  const { rows } =
    await sql<CommandTransition>`UPDATE device_commands m SET status = 'delivered', delivered_at = clock_timestamp(),
      due_at = least(m.expires_at, clock_timestamp() + m.timeout_ms::float8 * interval '1 millisecond')
    FROM clients c WHERE m.key = ANY (${[...keys]}::bigint[]) AND m.status = 'queued' AND m.due_at > clock_timestamp() AND c.key = m.client_key
    RETURNING ${TRANSITION}, 'deliver' AS operation`.execute(tx)
  return rows
}

type Ending = Extract<CommandFate, { to: 'end' }> & { commandKey: number }

/** Ends the commands that are open, and whose time has not passed: others end by themselves. */
async function endCommands(
  tx: Transaction,
  endings: readonly Ending[],
): Promise<{ commandKey: number; transition: CommandTransition }[]> {
  const { rows } = await sql<CommandTransition & { commandKey: number }>`
    UPDATE device_commands m SET status = n.status, ended_at = clock_timestamp(), result = n.result::jsonb, reason = n.reason,
      delivered_at = CASE WHEN n.is_delivered THEN coalesce(m.delivered_at, clock_timestamp()) ELSE m.delivered_at END
    FROM unnest(${endings.map(({ commandKey }) => commandKey)}::bigint[], ${endings.map(({ status }) => status)}::text[],
        ${endings.map(({ result }) => result ?? null)}::text[], ${endings.map(({ reason }) => reason ?? null)}::text[],
        ${endings.map(({ isDelivered }) => isDelivered)}::boolean[]) AS n (key, status, result, reason, is_delivered),
      clients c
    WHERE m.key = n.key AND m.ended_at IS NULL AND m.due_at > clock_timestamp() AND c.key = m.client_key
    RETURNING ${TRANSITION}, 'answer' AS operation, m.key AS "commandKey"`.execute(tx)
  return rows.map(({ commandKey, ...transition }) => ({ commandKey, transition }))
}

/** The first answer after the end. */
async function recordLateEnds(
  tx: Transaction,
  late: readonly { commandKey: number; status: string }[],
): Promise<CommandTransition[]> {
  const { rows } =
    await sql<CommandTransition>`UPDATE device_commands m SET late_at = clock_timestamp(), late_status = n.status
    FROM unnest(${late.map(({ commandKey }) => commandKey)}::bigint[], ${late.map(({ status }) => status)}::text[]) AS n (key, status), clients c
    WHERE m.key = n.key AND m.ended_at IS NOT NULL AND m.late_at IS NULL AND c.key = m.client_key
    RETURNING ${TRANSITION}, 'late' AS operation`.execute(tx)
  return rows
}
