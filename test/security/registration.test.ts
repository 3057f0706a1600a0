/** What a worker says of itself is bounded at Register (task-manager.md section 3): it is stored, and shown in every list of workers. */
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { RegisterRequestSchema } from '#proto/index.ts'
import type { RegisterRequest } from '#proto/index.ts'
import { registerWorker } from '../../manager/workers/registration.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database[Symbol.asyncDispose]())

const named = (count: number, name: (index: number) => string) => Array.from({ length: count }, (_, at) => name(at))
const labels = (count: number) => Object.fromEntries(named(count, (at) => `label${at}`).map((name) => [name, 'x']))

async function register(changes: Partial<RegisterRequest>): Promise<string> {
  const deps = {
    database: database.database,
    newId,
    managerId: newId(),
    leaseMs: () => 20_000,
    shown: 'plain',
  }
  const request = create(RegisterRequestSchema, { name: 'worker', bootId: 'boot', slots: 1, ...changes } as never)
  return await registerWorker(deps, request).then(
    () => 'registered',
    (error: Error) => error.message,
  )
}

const TAKEN = 'unknown join token or wrong worker secret'

test.each([
  ['32 runtimes and 64 labels', { runtimes: named(32, (at) => `runtime${at}`), labels: labels(64) }, TAKEN],
  ['33 runtimes', { runtimes: named(33, (at) => `runtime${at}`) }, 'the registration must have at most 32 runtimes'],
  ['65 labels', { labels: labels(65) }, 'the registration must have at most 64 labels'],
  [
    'a long runtime',
    { runtimes: ['x'.repeat(65)] },
    'the registration must have runtimes with names of 1 to 64 characters',
  ],
  [
    'a long label',
    { labels: { site: 'x'.repeat(257) } },
    'the registration must have strings of at most 256 characters without NUL',
  ],
  [
    'a long name',
    { name: 'x'.repeat(257) },
    'the registration must have strings of at most 256 characters without NUL',
  ],
])('%s', async (_what, changes, expected) => {
  expect(await register(changes as Partial<RegisterRequest>)).toBe(expected)
})
