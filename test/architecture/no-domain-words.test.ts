/** Core and the rooms beside it are technology, which no domain owns. A domain's word in them shows that something moved down too far. */
import { describe, expect, it } from 'vitest'
import { TECHNOLOGY } from './rooms.ts'
import { productSources } from './source-imports.ts'

/** Each word with the room that it belongs to. Words of a protocol that technology speaks itself (HTTP, SQL, Wasm) are no domain words. */
const DOMAIN_WORDS: readonly { word: RegExp; room: string }[] = [
  { word: /\btenants?\b/i, room: 'api/identity (and there it is called a domain)' },
  { word: /\bdomain_?(key|id|keys|ids)\b/i, room: 'api/identity' },
  { word: /\b(grants?|group_closure|super_?admin)\b/, room: 'api/identity' },
  { word: /\b(invitations?|personal access)\b(?! token)/i, room: 'api/identity' },
  { word: /\bchannels?(_?(key|id|keys|ids))?\b/i, room: 'api/devices' },
  { word: /\b(client|device)_?(key|id|keys|ids|secret|secrets|mac)\b/i, room: 'api/devices' },
  { word: /\b(senml|subtopics?|rollups?|base name)\b/i, room: 'api/messages' },
  { word: /\b(publisher_?(key|id)s?|telemetry|retention)\b/i, room: 'api/messages' },
  { word: /\b(mqtt|coap) (topic|filter|session)s?\b/i, room: 'api/adapters' },
  { word: /\b(tasks?|workflows?|schedulers?|placements?)\b/i, room: 'manager' },
  { word: /\b(fence|fences|run_?ids?|task_?ids?)\b/i, room: 'manager' },
  { word: /\b(heartbeats?|proplets?)\b/i, room: 'worker' },
  { word: /\b(oci|registry_url|repository:tag)\b/i, room: 'proxy' },
]

/**
 * Sentences that name a domain word for a reason: the file, the line as it stands, the reason. A line that is gone
 * must be removed here too.
 */
const ALLOWED: readonly { path: string; line: string; reason: string }[] = [
  {
    path: 'http/openapi/openapi.ts',
    line: "description: 'Device messaging platform and distributed WebAssembly task manager.',",
    reason: 'the sentence about the product, shown in its API document',
  },
  {
    path: 'core/jobs/job-process.ts',
    line: 'const handles = [child, child.channel]',
    reason: "Node's name of the pipe to a process",
  },
  {
    path: 'core/logging/logger.ts',
    line: "'client_key',",
    reason: 'the key file of a certificate, among the names that are never logged',
  },
  {
    path: 'guests/wasi/preview2.ts',
    line: 'value = deny(`${name}: ${property} is not granted to this task`)',
    reason: 'what the author of a guest reads, on a worker and in a trial',
  },
  {
    path: 'guests/wasm/state.ts',
    line: "export const STATE_BUCKETS = ['task', 'client'] as const",
    reason: 'the names that the author of a guest opens, on a worker and in a trial',
  },
]

const isOfTechnology = ({ path }: { path: string }) => TECHNOLOGY.some((room) => path.startsWith(`${room}/`))

function findings(): { path: string; line: string; room: string }[] {
  return productSources()
    .filter(isOfTechnology)
    .flatMap(({ path, text }) =>
      text.split('\n').flatMap((line) => {
        const found = DOMAIN_WORDS.find(({ word }) => word.test(line))
        return found === undefined ? [] : [{ path, line: line.trim(), room: found.room }]
      }),
    )
}

describe('technology', () => {
  const found = findings()
  const isAllowed = (one: { path: string; line: string }) =>
    ALLOWED.some(({ path, line }) => path === one.path && line === one.line)

  it('holds no word of a domain', () => {
    expect(
      found.filter((one) => !isAllowed(one)).map(({ path, line, room }) => `${path}: "${line}" belongs to ${room}`),
    ).toEqual([])
  })

  it('excuses no line that is not there', () => {
    expect(ALLOWED.filter(({ path, line }) => !found.some((one) => one.path === path && one.line === line))).toEqual([])
  })

  it('has enough files to be believed, and a list that finds what it is for', () => {
    expect(productSources().filter(isOfTechnology).length).toBeGreaterThan(40)
    for (const text of [
      'WHERE domain_key = 1',
      'the channel of a client',
      'parse SenML',
      'the task is running',
      'a worker heartbeat',
    ]) {
      expect(
        DOMAIN_WORDS.some(({ word }) => word.test(text)),
        text,
      ).toBe(true)
    }
  })
})
