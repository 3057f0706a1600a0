/**
 * `publish_result`: writes the result of a run as SenML in the transaction of the result, so that it exists exactly if
 * the result does. A node of the platform publishes it to its channel.
 */
import { TASK_STATE } from '#proto/index.ts'
import { resultRecords } from '../model/result-records.ts'
import { publicationsOf } from '#queues/index.ts'
import type { RunBatch } from './batch.ts'
import type { RunEnding, RunHandle } from '../model/run.ts'

export async function publishResults(
  batch: RunBatch,
  ends: readonly { run: RunHandle; ending: RunEnding }[],
): Promise<void> {
  const published = ends.flatMap(({ run, ending }) => {
    const { publish_result: target, domain_key: domainKey, user_key: userKey, task_name: name, traceparent } = run.spec
    if (target === undefined || domainKey === undefined || userKey === undefined) return []
    if (ending.state !== TASK_STATE.completed || ending.results === null) return []
    const records = resultRecords(name, JSON.parse(ending.results))
    if (records.length === 0) return []
    const subtopic = (target.subtopic ?? '').replaceAll('/', '.')
    const { id: runId, fence, taskKey } = run
    return [
      {
        domainKey,
        userKey,
        channelId: target.channel_id,
        subtopic,
        taskKey,
        runId,
        fence: fence ?? 0,
        records,
        traceparent,
      },
    ]
  })
  if (published.length === 0) return
  const { name, text, values } = publicationsOf(published)
  await batch.rows(name, text, values)
  batch.afterCommit(() => batch.context.onPublished?.())
}
