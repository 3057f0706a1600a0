/** `dead-letters`, `retry` and `discard` of what can give messages up: tasks, subscriptions, consumers and rules. */
import type { Command } from '../shared/command.ts'
import { arg } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

/** `all`, or comma-separated ids: nothing is retried or discarded by default. */
function selection(given: Given): Record<string, unknown> {
  const letters = arg(given, 'all|letter_ids')
  return letters === 'all' ? { all: true } : { ids: letters.split(',') }
}

/** `path` is that of the owner; `name` is its argument. */
export function deadLetterCommands(
  owner: string,
  {
    path,
    name,
    tail = 'user',
    ...call
  }: { path: string; name: string; tail?: 'user' | 'domain'; service: 'host' | 'manager'; auth?: 'optional' },
): Command[] {
  const change = (words: 'retry' | 'discard', summary: string): Command => ({
    words,
    args: `<${name}> <all|letter_ids>`,
    tail,
    summary,
    example: `<${name}> all`,
    call: { method: 'POST', ...call, path: `${path}/dead-letters/${words}`, body: selection },
  })
  return [
    {
      words: 'dead-letters',
      args: `<${name}>`,
      tail,
      summary: `list the messages that ${owner} gave up`,
      example: `<${name}>`,
      columns: ['id', 'source', 'contact', 'at', 'reason', 'error', 'attempts', 'created_at'],
      call: { method: 'GET', ...call, path: `${path}/dead-letters`, query: ['limit', 'offset'] },
    },
    change('retry', 'try dead letters again'),
    change('discard', 'remove dead letters'),
  ]
}
