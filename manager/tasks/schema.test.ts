// task-manager.md section 1: the fields of a task
import { expect, test } from 'vitest'
import { DEFAULT_PRIORITY, fromBody, refuseWorkflowFields } from './schema.ts'

test('absent fields stay absent, null sets the default', () => {
  expect(fromBody({})).toEqual({})
  expect(fromBody({ timeout: null, priority: null, memory_limit: null, on_lost: null, env: null })).toEqual({
    timeoutMs: 300_000,
    priority: DEFAULT_PRIORITY,
    memoryLimitBytes: 64 * 1024 * 1024,
    onLost: 'requeue',
    env: {},
  })
})

test.each([
  [1_048_576, 1_048_576],
  ['64MiB', 67_108_864],
  ['64 MiB', 67_108_864],
  ['1GB', 1_000_000_000],
  ['512', 512],
])('a memory limit of %s is %i bytes', (given, bytes) => {
  expect(fromBody({ memory_limit: given })).toEqual({ memoryLimitBytes: bytes })
})

test.each(['0', '-1MiB', '64 elephants', '5GiB', 'MiB'])('a memory limit of "%s" is refused by name', (given) => {
  expect(() => fromBody({ memory_limit: given })).toThrow(
    expect.objectContaining({ kind: 'malformed', details: [expect.objectContaining({ path: '/memory_limit' })] }),
  )
})

test.each(['0s', 'soon', '8000000s', '-1s'])('a timeout of "%s" is refused', (given) => {
  expect(() => fromBody({ timeout: given })).toThrow(expect.objectContaining({ kind: 'malformed' }))
})

test('retry is taken as a whole: what it leaves out is the default', () => {
  expect(fromBody({ retry: { max_attempts: 5 } })).toEqual({ maxAttempts: 5, backoffMs: 1000 })
  expect(fromBody({ retry: { backoff: '10ms' } })).toEqual({ maxAttempts: null, backoffMs: 10 })
})

test('an empty reference, function or worker means none', () => {
  expect(fromBody({ image_url: '', function: '', worker_id: '' })).toEqual({
    imageUrl: null,
    function: null,
    workerId: null,
  })
})

test.each(['depends_on', 'run_if'])(
  '%s is refused outside of a workflow when it is set, not when it is empty',
  (field) => {
    expect(() => refuseWorkflowFields({ [field]: ['parent'] })).toThrow(
      expect.objectContaining({ kind: 'unprocessable' }),
    )
    expect(() => refuseWorkflowFields({ [field]: 'always' })).toThrow(`${field} belongs to`)
    for (const nothing of [null, false, '', [], {}])
      expect(() => refuseWorkflowFields({ [field]: nothing })).not.toThrow()
  },
)
