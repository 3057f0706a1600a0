import { toBinary } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { SessionResponseSchema, TASK_STATE } from '#proto/index.ts'
import type { SessionResponse } from '#proto/index.ts'
import type { AssignedRun, RunSpec } from '../model/run.ts'
import { WorkerSession } from '../placement/worker-session.ts'
import { WorkerStream } from './worker-stream.ts'
import { WORKER_FACTS } from '../placement/worker-facts.ts'

const FACTS = { ...WORKER_FACTS, id: 'w', name: 'w', slots: 2, backlog: 100 }

const runWith = (key: number, more: Partial<RunSpec>): AssignedRun => ({
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
    cli_args: [],
    env: {},
    module_bytes: 1,
    module_reference: null,
    timeout_ms: 1000,
    memory_limit_bytes: 1,
    on_lost: 'requeue',
    max_attempts: null,
    backoff_ms: 1000,
    ...more,
  },
})

/** The largest message that a worker accepts. */
const MAX_RECEIVED_BYTES = 16 * 1024 * 1024

function sentFor(more: Partial<RunSpec>, count = 40): SessionResponse[] {
  const sent: SessionResponse[] = []
  const delivery = { modules: { of: () => ({}) } as never, openSecrets: () => ({}) }
  const session = new WorkerSession(FACTS, 0, new WorkerStream(FACTS.id, delivery, (message) => sent.push(message)))
  for (let key = 1; key <= count; key++) session.assign(runWith(key, more))
  session.flush()
  return sent
}

const runsIn = ({ message }: SessionResponse) =>
  message.case === 'assign' ? message.value.assignments.map(({ run }) => run?.runId) : []

const euros = (length: number) => '€'.repeat(length)
const id = '00000000-0000-0000-0000-000000000000'
const LONG: [what: string, count: number, more: Partial<RunSpec>][] = [
  ['arguments', 40, { cli_args: Array.from({ length: 30 }, () => euros(32_000)) }],
  [
    'grants',
    1000,
    {
      grants: Array.from({ length: 32 }, () => ({
        kind: 'read' as const,
        channel_id: id,
        subtopic: euros(1024),
        name: euros(256),
      })),
    },
  ],
  [
    'names and many short texts',
    1000,
    {
      task_name: euros(1024),
      function: euros(1024),
      cli_args: Array.from({ length: 1000 }, () => 'a'),
      env: Object.fromEntries(Array.from({ length: 256 }, (_, index) => [euros(1) + index, ''])),
    },
  ],
]

test.each(LONG)(
  'assignments with long %s are split into messages that a worker accepts, in order',
  (_what, count, more) => {
    const sent = sentFor(more, count)
    for (const message of sent) expect(toBinary(SessionResponseSchema, message).length).toBeLessThan(MAX_RECEIVED_BYTES)
    expect(sent.flatMap(runsIn)).toEqual(Array.from({ length: count }, (_, index) => `run ${index + 1}`))
  },
)

test('short assignments are sent in one message', () => {
  expect(sentFor({ cli_args: ['short'] }, 1000).map((message) => runsIn(message).length)).toEqual([1000])
})
