/** SQL of rules whose condition is a function: where they stand, and the call that each of them waits for. */
import type { Place } from '#api/consumers/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { TriggerMessage } from '#queues/index.ts'
import { placeValues } from '../../repository.ts'

/** Batch, number of the message in it, and number of the record in the message. */
export type SampleKey = readonly [seq: number, message: number, record: number]

/** A call that has ended. */
export type EndedCall = {
  status: 'done' | 'failed' | 'refused'
  attempt: number
  samples: readonly SampleKey[]
  results: unknown
  reason: string | null
  /** Where the rule goes on. */
  until: Place
}

/** A rule that does not wait for a call. */
export type Standing = { key: number; place: Place; call: EndedCall | undefined }

type Row = {
  key: number
  xid: string
  seq: number
  message: number
  status: EndedCall['status'] | null
  attempt: number | null
  samples: SampleKey[] | null
  results: unknown
  reason: string | null
  untilXid: string | null
  untilSeq: number | null
  untilMessage: number | null
}

/** First those whose function has returned, then those that are furthest behind. */
export async function listStanding(tx: Transaction, domainKey: number, limit: number): Promise<Standing[]> {
  const { rows } = await sql<Row>`
    SELECT r.key, r.xid::text AS xid, r.seq, r.message, c.status, c.attempt, c.samples, c.results, c.reason,
      c.xid::text AS "untilXid", c.seq AS "untilSeq", c.message AS "untilMessage"
      FROM rules r LEFT JOIN rule_calls c ON c.rule_key = r.key
     WHERE r.domain_key = ${domainKey} AND r.is_behind AND r.status = 'enabled' AND r.paused_at IS NULL AND r.definition ? 'condition_task'
       AND (c.status <> 'open') IS NOT FALSE
     ORDER BY c.rule_key IS NULL, r.xid, r.seq, r.message, r.key LIMIT ${limit}`.execute(tx)
  return rows.map(({ key, xid, seq, message, status, attempt, samples, results, reason, ...until }) => ({
    key,
    place: { xid: BigInt(xid), seq, message },
    call:
      status === null
        ? undefined
        : {
            status,
            attempt: attempt ?? 1,
            samples: samples ?? [],
            results,
            reason,
            until: { xid: BigInt(until.untilXid ?? 0), seq: until.untilSeq ?? 0, message: until.untilMessage ?? 0 },
          },
  }))
}

export async function insertCall(
  tx: Transaction,
  call: {
    ruleKey: number
    domainKey: number
    taskId: string
    runId: string
    given: readonly TriggerMessage[]
    samples: readonly SampleKey[]
    until: Place
    sinceMs: number
  },
): Promise<void> {
  await sql`INSERT INTO rule_calls (rule_key, domain_key, task_id, run_id, given, samples, xid, seq, message, since)
    VALUES (${call.ruleKey}, ${call.domainKey}, ${call.taskId}, ${call.runId}, ${JSON.stringify(call.given)}::json, ${JSON.stringify(call.samples)}::json,
      ${placeValues(call.until)}, to_timestamp(${call.sinceMs / 1000}::float8))`.execute(tx)
}

export async function removeCall(tx: Transaction, ruleKey: number): Promise<void> {
  await sql`DELETE FROM rule_calls WHERE rule_key = ${ruleKey}`.execute(tx)
}

/** Another run gets the messages of a call that failed. */
export async function repeatCall(
  tx: Transaction,
  ruleKey: number,
  { runId, afterSeconds }: { runId: string; afterSeconds: number },
): Promise<void> {
  await sql`UPDATE rule_calls SET status = 'open', attempt = attempt + 1, run_id = ${runId}, results = NULL, reason = NULL,
    due_at = now() + make_interval(secs => ${afterSeconds}) WHERE rule_key = ${ruleKey}`.execute(tx)
}
