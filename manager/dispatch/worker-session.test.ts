import { toBinary } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { SessionResponseSchema, TASK_STATE } from '#proto/index.ts'
import type { SessionResponse } from '#proto/index.ts'
import type { HeldRun } from '../runs/spec.ts'
import { WorkerSession } from './worker-session.ts'

const FACTS = {
  key: 1,
  id: 'w',
  name: 'w',
  domainId: null,
  labels: {},
  runtimes: [],
  memoryBytes: 1,
  slots: 2,
  backlog: 100,
  isDraining: false,
  epoch: 1,
  cachedDigests: [],
  peerAddress: '',
}

const runWith = (key: number, cliArgs: string[]): HeldRun => ({
  key,
  id: `run ${key}`,
  taskKey: 1,
  drivesTask: false,
  parentId: null,
  attempt: 1,
  fence: key,
  digest: 'sha256:0',
  needs: '',
  state: TASK_STATE.scheduled,
  spec: {
    task_id: 't',
    task_name: 'add',
    domain_id: null,
    function: null,
    inputs: [],
    cli_args: cliArgs,
    env: {},
    module_bytes: 1,
    module_reference: null,
    timeout_ms: 1000,
    memory_limit_bytes: 1,
    on_lost: 'requeue',
    max_attempts: null,
    backoff_ms: 1000,
  },
})

/** What a worker takes at most in one message. */
const MAX_RECEIVED_BYTES = 16 * 1024 * 1024

function sentFor(argsOf: (key: number) => string[]): SessionResponse[] {
  const sent: SessionResponse[] = []
  const session = new WorkerSession(FACTS, 0, (message) => sent.push(message))
  for (let key = 1; key <= 40; key++) session.assign(runWith(key, argsOf(key)))
  session.flush({ modules: { of: () => ({}) } as never, openSecrets: () => ({}) }, () => [])
  return sent
}

const runsIn = ({ message }: SessionResponse) =>
  message.case === 'assign' ? message.value.assignments.map(({ run }) => run?.runId) : []

test('assignments with long arguments go in messages that a worker takes, in their order', () => {
  const sent = sentFor(() => Array.from({ length: 30 }, () => '€'.repeat(32_000)))
  for (const message of sent) expect(toBinary(SessionResponseSchema, message).length).toBeLessThan(MAX_RECEIVED_BYTES)
  expect(sent.flatMap(runsIn)).toEqual(Array.from({ length: 40 }, (_, index) => `run ${index + 1}`))
})

test('short ones go in one message', () => {
  expect(sentFor(() => ['short']).map((message) => runsIn(message).length)).toEqual([40])
})
