/**
 * The fields with which a task acts as its grantor: the channel fields (task-manager.md section 5), and the commands that it answers. Parsing,
 * canonical form and limits; their writers check permissions.
 */
import { refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { parseDurationMs } from '#core/time.ts'
import type { Answers, Comparator, Excess, Ordering, TriggerRule } from '#queues/index.ts'

/** The form of requests and answers. */
export type Trigger = {
  channel_id: string
  subtopic?: string
  name?: string
  when?: { comparator: Comparator; value: number }
  debounce?: string
  rate_limit?: string
  excess?: Excess
  batch?: number
  order?: Ordering
}

export type Target = { channel_id: string; subtopic?: string }

export const GRANT_KINDS = ['publish', 'read'] as const
export type Grant = Target & { kind: (typeof GRANT_KINDS)[number]; name?: string }

const MAX_DEBOUNCE_MS = 3_600_000
const MAX_RATE_MS = 86_400_000
const RATE = /^(\d{1,6}) ?\/ ?(.+)$/

/** Throws `malformed` naming the field. */
export function triggerRule(trigger: Trigger): Omit<TriggerRule, 'channelKey'> {
  requireChannelId(trigger.channel_id, '/trigger/channel_id')
  const rate = trigger.rate_limit === undefined ? undefined : parseRate(trigger.rate_limit)
  const excess = trigger.excess ?? 'drop'
  if (excess === 'wait' && rate === undefined) throw refusedField('/trigger/excess', 'needs a rate_limit')
  if (excess === 'wait' && trigger.debounce !== undefined)
    throw refusedField('/trigger/excess', 'must be drop with debounce, which keeps only the last message')
  for (const name of ['batch', 'order'] as const)
    if (trigger[name] !== undefined && trigger.debounce !== undefined)
      throw refusedField(`/trigger/${name}`, 'must be absent with debounce, which keeps only the last message')
  return {
    subtopic: canonicalSubtopic(trigger.subtopic, '/trigger/subtopic'),
    name: trigger.name === undefined || trigger.name === '' ? null : trigger.name,
    comparator: trigger.when?.comparator ?? null,
    value: trigger.when?.value ?? null,
    debounceMs:
      trigger.debounce === undefined ? null : boundedMs(trigger.debounce, '/trigger/debounce', MAX_DEBOUNCE_MS),
    rateCount: rate?.count ?? null,
    rateMs: rate?.ms ?? null,
    excess,
    batch: trigger.batch ?? null,
    ordering: trigger.order ?? null,
  }
}

function parseRate(text: string): { count: number; ms: number } {
  const match = RATE.exec(text)
  const count = Number(match?.[1] ?? 0)
  if (match === null || count < 1)
    throw refusedField('/trigger/rate_limit', 'must be a count per duration, such as 10/1m')
  return { count, ms: boundedMs(match[2] ?? '', '/trigger/rate_limit', MAX_RATE_MS) }
}

function boundedMs(text: string, path: string, maxMs: number): number {
  const ms = Math.round(parseDurationMs(text, path))
  if (ms < 1 || ms > maxMs) throw refusedField(path, `must be between 1ms and ${maxMs / 60_000}m`)
  return ms
}

export function requireChannelId(id: string, path: string): void {
  if (!isId(id)) throw refusedField(path, 'must be the id of a channel')
}

/** The given fields alone. Throws `malformed` naming the field. */
export function answersOf({ command, client_id: clientId, group, tag }: Answers): Answers {
  if (clientId !== undefined && !isId(clientId)) throw refusedField('/answers/client_id', 'must be the id of a client')
  if (group !== undefined && !isId(group)) throw refusedField('/answers/group', 'must be the id of a group')
  return {
    command,
    ...(clientId === undefined ? {} : { client_id: clientId }),
    ...(group === undefined ? {} : { group }),
    ...(tag === undefined ? {} : { tag }),
  }
}

const MAX_SUBTOPIC_CHARS = 1024
const FORBIDDEN_IN_SUBTOPIC = /[+#*>\0\s]/

/** Elements joined by `.`, as in messages; `/` is also accepted. Throws `malformed`. */
export function canonicalSubtopic(text: string | undefined, path: string): string {
  if (text === undefined || text === '') return ''
  const canonical = text.replaceAll('/', '.')
  const isEmptyPart = canonical.split('.').includes('')
  if (text.length > MAX_SUBTOPIC_CHARS || isEmptyPart || FORBIDDEN_IN_SUBTOPIC.test(text)) {
    throw refusedField(path, 'must be elements joined by . or /, without wildcards and spaces')
  }
  return canonical
}
