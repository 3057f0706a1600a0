import { toBinary } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { SessionResponseSchema, TASK_STATE } from '#proto/index.ts'
import type { SessionResponse } from '#proto/index.ts'
import type { AssignedRun, RunSpec } from '../model/run.ts'
import { WorkerSession } from '../placement/worker-session.ts'
import { WorkerStream, type Delivery, type Undelivered } from './worker-stream.ts'
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

type Reads = Pick<Delivery, 'readGiven'> & Partial<Undelivered>

/** By default no run has a message that is stored apart. */
function streamTo(
  sent: SessionResponse[],
  { readGiven = async () => undefined, gone = () => {}, failed = () => {} }: Partial<Reads> = {},
): WorkerStream {
  const delivery = { modules: { of: () => ({}) } as never, openSecrets: () => ({}), readGiven }
  return new WorkerStream(FACTS.id, delivery, { send: (message) => sent.push(message), undelivered: { gone, failed } })
}

function sentFor(more: Partial<RunSpec>, count = 40): SessionResponse[] {
  const sent: SessionResponse[] = []
  const session = new WorkerSession(FACTS, 0, streamTo(sent))
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

const REFERRING: Partial<RunSpec> = { given: { messages: [{ content_key: 1 }], is_list: false, params: null } }
const toPeers = (key: number, more: Partial<RunSpec>) => ({ run: runWith(key, more), peers: [] })
const caseOf = ({ message }: SessionResponse) => message.case

test('a run is sent after its message was read, and what follows it is sent after the run', async () => {
  const sent: SessionResponse[] = []
  const read = Promise.withResolvers<{ inputsJson: string; triggerJson: string }>()
  const stream = streamTo(sent, { readGiven: () => read.promise })
  stream.assign([toPeers(1, {}), toPeers(2, REFERRING)])
  stream.cancel([runWith(2, REFERRING)] as never)
  stream.assign([toPeers(3, {})])
  await Promise.resolve()
  expect(sent.flatMap(runsIn)).toEqual(['run 1'])
  read.resolve({ inputsJson: '[[1]]', triggerJson: '{"records":[1]}' })
  await expect.poll(() => sent.map(caseOf)).toEqual(['assign', 'assign', 'cancel', 'assign'])
  expect(sent.flatMap(runsIn)).toEqual(['run 1', 'run 2', 'run 3'])
  const [, second] = sent
  expect(second?.message.case === 'assign' && second.message.value.assignments[0]).toMatchObject({
    inputsJson: '[[1]]',
    triggerJson: '{"records":[1]}',
  })
  stream.cancel([])
  expect(sent.map(caseOf).at(-1)).toBe('cancel')
})

test('a run whose message is gone or cannot be read is not sent, and the others are', async () => {
  const sent: SessionResponse[] = []
  const [gone, failed]: [string[], string[]] = [[], []]
  const stream = streamTo(sent, {
    async readGiven({ key }) {
      if (key === 2) throw new Error('no database')
      return key === 1 ? undefined : { inputsJson: '[]', triggerJson: '{}' }
    },
    gone: ({ id: run }) => gone.push(run),
    failed: ({ id: run }) => failed.push(run),
  })
  stream.assign([1, 2, 3].map((key) => toPeers(key, REFERRING)))
  await expect.poll(() => sent.flatMap(runsIn)).toEqual(['run 3'])
  expect([gone, failed]).toEqual([['run 1'], ['run 2']])
})
