/** Matches messages with triggers. */
import { SENML_JSON } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import { coversSubtopic, matchingRecords } from '#queues/index.ts'
import type { NewMessage, SenmlRecord, TriggerFilter, TriggerMessage } from '#queues/index.ts'

/** A message that matches a trigger, with what its run gets of it. */
export type Match = NewMessage & { taskKey: number; of: LiveMessage }

/** The matches of a message with triggers of its channel. Rules that ask for the same records share one object. */
export function matchesOf(message: LiveMessage, rules: readonly TriggerFilter[]): Match[] {
  if (rules.length === 0 || message.contentType !== SENML_JSON) return []
  let records: SenmlRecord[]
  try {
    records = JSON.parse(message.payload.toString('utf8')) as SenmlRecord[]
  } catch {
    return []
  }
  const shared = new Map<string, TriggerMessage | undefined>()
  const giveTo = (rule: TriggerFilter): TriggerMessage | undefined => {
    const filter =
      rule.name === null && rule.comparator === null ? '' : JSON.stringify([rule.name, rule.comparator, rule.value])
    if (shared.has(filter)) return shared.get(filter)
    const matching = matchingRecords({ ...rule, subtopic: '' }, message.subtopic, records)
    const given =
      matching.length === 0
        ? undefined
        : {
            channel_id: message.channelId,
            subtopic: message.subtopic,
            publisher: message.publisherId,
            protocol: message.protocol,
            records: matching,
          }
    shared.set(filter, given)
    return given
  }
  return rules.flatMap((rule): Match[] => {
    // A task that is triggered by its own results would run forever.
    if (message.protocol === 'task' && message.subtopic === rule.publishesTo) return []
    if (!coversSubtopic(rule.subtopic, message.subtopic)) return []
    const given = giveTo(rule)
    if (given === undefined) return []
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
