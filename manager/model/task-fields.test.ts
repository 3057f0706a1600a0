// task-manager.md section 1: the fields of a task
import { expect, test } from 'vitest'
import { readFields } from './task-fields.ts'

test('absent fields stay absent, null sets the default', () => {
  expect(readFields({})).toEqual({})
  expect(readFields({ timeout: null, priority: null, memory_limit: null, on_lost: null, env: null })).toEqual({
    timeout_ms: 300_000,
    priority: 50,
    memory_limit_bytes: 64 * 1024 * 1024,
    on_lost: 'requeue',
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
  expect(readFields({ memory_limit: given })).toEqual({ memory_limit_bytes: bytes })
})

test.each(['0', '-1MiB', '64 elephants', '5GiB', 'MiB'])(
  'a memory limit of "%s" is refused with its field',
  (given) => {
    expect(() => readFields({ memory_limit: given })).toThrow(
      expect.objectContaining({ kind: 'malformed', details: [expect.objectContaining({ path: '/memory_limit' })] }),
    )
  },
)

test.each(['0s', 'soon', '8000000s', '-1s'])('a timeout of "%s" is refused', (given) => {
  expect(() => readFields({ timeout: given })).toThrow(expect.objectContaining({ kind: 'malformed' }))
})

test('retry is replaced as a whole: its missing members get their defaults', () => {
  expect(readFields({ retry: { max_attempts: 5 } })).toEqual({ max_attempts: 5, backoff_ms: 1000 })
  expect(readFields({ retry: { backoff: '10ms' } })).toEqual({ max_attempts: null, backoff_ms: 10 })
})

test('an empty reference, function or worker means none', () => {
  expect(readFields({ image_url: '', function: '', worker_id: '' })).toEqual({
    image_url: null,
    function: null,
    worker_id: null,
  })
})
