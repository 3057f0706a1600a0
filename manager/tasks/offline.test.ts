// decision 0161: what an offline task requires and excludes
import { expect, test } from 'vitest'
import { requireOffline } from './offline.ts'
import type { OfflineCandidate } from './offline.ts'

const OFFLINE: OfflineCandidate = {
  offline: true,
  schedule: '0 * * * *',
  worker_id: '11111111-1111-4111-8111-111111111111',
  broadcast: false,
  daemon: false,
  trigger: null,
  publish_result: null,
  grants: [],
  answers: null,
  http: null,
  secretNames: [],
  isInWorkflow: false,
  module: null,
}
const HTTP = {
  allow: [{ origin: 'https://example.com', methods: ['GET' as const] }],
  max_requests: 1,
  max_bytes: 1_000,
  timeout: '1s',
}

test('a task with a schedule and a worker can be offline', () => {
  expect(() => requireOffline(OFFLINE)).not.toThrow()
})

const REFUSED: [path: string, fields: Partial<OfflineCandidate>][] = [
  ['/schedule', { schedule: null }],
  ['/worker_id', { worker_id: null }],
  ['/http', { http: HTTP }],
  ['/secrets', { secretNames: ['TOKEN'] }],
  ['/broadcast', { broadcast: true }],
  ['/daemon', { daemon: true }],
  ['/offline', { isInWorkflow: true }],
]

test.each(REFUSED)('%s is refused as it would need a task manager, and only for an offline task', (path, fields) => {
  const refusal = expect.objectContaining({ kind: 'malformed', details: [expect.objectContaining({ path })] })
  expect(() => requireOffline({ ...OFFLINE, ...fields })).toThrow(refusal)
  expect(() => requireOffline({ ...OFFLINE, ...fields, offline: false })).not.toThrow()
})
