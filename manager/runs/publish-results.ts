/**
 * `publish_result`: the result of a run as SenML, written in the transaction of the result, so that it exists exactly when
 * the result does. Some node of the platform takes it to its channel.
 */
import { jsonArray } from '#core/database/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import { resultRecords } from '../channels/result-records.ts'
import type { RunBatch } from './batch.ts'
import type { RunEnding, RunHandle } from './spec.ts'

// The time of the record is that of the end: both are the transaction's.
const WRITE_PUBLICATIONS = `
  INSERT INTO task_publications (domain_key, user_key, channel_id, subtopic, payload, task_key, run_id, fence, call_id)
  SELECT c.domain_key, c.user_key, c.channel_id, c.subtopic,
    (SELECT jsonb_agg(record || jsonb_build_object('t', round(extract(epoch FROM now()), 6))) FROM jsonb_array_elements(c.records) record)::text,
    c.task_key, c.run_id, c.fence, 0
  FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::text[], $5::jsonb[], $6::bigint[], $7::uuid[], $8::bigint[])
    AS c (domain_key, user_key, channel_id, subtopic, records, task_key, run_id, fence)
  ON CONFLICT ON CONSTRAINT task_publications_call_key DO NOTHING`

export async function publishResults(
  batch: RunBatch,
  ends: readonly { run: RunHandle; ending: RunEnding }[],
): Promise<void> {
  const published = ends.flatMap(({ run, ending }) => {
    const { publish_result: target, domain_key: domainKey, user_key: userKey, task_name: name } = run.spec
    if (target === undefined || domainKey === undefined || userKey === undefined) return []
    if (ending.state !== TASK_STATE.completed || ending.results === null) return []
    const records = resultRecords(name, JSON.parse(ending.results))
    return records.length === 0 ? [] : [{ run, target, domainKey, userKey, records }]
  })
  if (published.length === 0) return
  await batch.rows('write-publications', WRITE_PUBLICATIONS, [
    published.map(({ domainKey }) => domainKey),
    published.map(({ userKey }) => userKey),
    published.map(({ target }) => target.channel_id),
    published.map(({ target }) => (target.subtopic ?? '').replaceAll('/', '.')),
    jsonArray(published.map(({ records }) => JSON.stringify(records))),
    published.map(({ run }) => run.taskKey),
    published.map(({ run }) => run.id),
    published.map(({ run }) => run.fence ?? 0),
  ])
  batch.afterCommit(() => batch.context.onPublished?.())
}
