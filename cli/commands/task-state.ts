/** `skein tasks state`: what the guests of a task keep between runs. */
import type { Command } from '../shared/command.ts'
import { arg, contentOf } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const ONE = '/tasks/{task_id}/state/{key}'
const COMMON = { service: 'manager', auth: 'optional' } as const

/** `@FILE` is the content of a file. Bytes that are no text are sent as base64. */
function valueBody(given: Given): unknown {
  const content = contentOf(arg(given, 'value'))
  if (typeof content === 'string') return { value: content }
  return { value: content.toString('base64'), encoding: 'base64' }
}

export const TASK_STATE_COMMANDS: readonly Command[] = [
  {
    words: 'state set',
    args: '<task_id> <key> <value>',
    tail: 'user',
    summary: 'write a value: text, or @FILE',
    example: '<task_id> count 42',
    flags: ['client'],
    columns: ['key', 'client', 'size', 'version', 'updated_at'],
    call: { method: 'PUT', ...COMMON, path: ONE, query: ['client'], body: valueBody },
  },
  {
    words: 'state get',
    args: '<task_id> <key>',
    tail: 'user',
    summary: 'show a value',
    example: '<task_id> count',
    flags: ['client'],
    columns: ['key', 'client', 'value', 'encoding', 'size', 'version', 'updated_at'],
    call: { method: 'GET', ...COMMON, path: ONE, query: ['client'] },
  },
  {
    words: 'state list',
    args: '<task_id>',
    tail: 'user',
    summary: 'list the keys that the guests of a task keep',
    example: '<task_id>',
    flags: ['client'],
    columns: ['key', 'client', 'size', 'version', 'updated_at'],
    call: { method: 'GET', ...COMMON, path: '/tasks/{task_id}/state', query: ['limit', 'offset', 'client'] },
  },
  {
    words: 'state delete',
    args: '<task_id> <key>',
    tail: 'user',
    summary: 'delete a key',
    example: '<task_id> count',
    flags: ['client'],
    answer: 'ok',
    call: { method: 'DELETE', ...COMMON, path: ONE, query: ['client'] },
  },
]
