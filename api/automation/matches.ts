/** Which messages match which triggers. */
import { SENML_JSON } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import { matchingRecords } from '#queues/index.ts'
import type { NewMessage, SenmlRecord, TriggerFilter } from '#queues/index.ts'

/** A message that matches a trigger, with what its run gets of it. */
export type Match = NewMessage & { taskKey: number; of: LiveMessage }

/** The matches of a message with triggers of its channel. */
export function matchesOf(message: LiveMessage, rules: readonly TriggerFilter[]): Match[] {
  if (rules.length === 0 || message.contentType !== SENML_JSON) return []
  let records: SenmlRecord[]
  try {
    records = JSON.parse(message.payload.toString('utf8')) as SenmlRecord[]
  } catch {
    return []
  }
  return rules.flatMap((rule): Match[] => {
    // A task that is triggered by its own results would run forever.
    if (message.protocol === 'task' && message.subtopic === rule.publishesTo) return []
    const matching = matchingRecords(rule, message.subtopic, records)
    if (matching.length === 0) return []
    const given = {
      channel_id: message.channelId,
      subtopic: message.subtopic,
      publisher: message.publisherId,
      protocol: message.protocol,
      records: matching,
    }
    return [
      {
        taskKey: rule.taskKey,
        of: message,
        origin: `message ${message.batchSeq}/${message.index}`,
        message: given,
        traceparent: message.envelope?.traceparent,
      },
    ]
  })
}
