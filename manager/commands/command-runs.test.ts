import { expect, test } from 'vitest'
import { createLocalBus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import { startCommandRuns } from './command-runs.ts'
import type { CommandRunsDeps } from './command-runs.ts'

const COMMAND = {
  domainKey: 1,
  clientId: 'c',
  name: 'add',
  payload: null,
  hasPayload: false,
  createdAt: '',
  expiresAt: '',
  isEnded: false,
  endedSeconds: null,
  deliveredSeconds: 0,
  leftSeconds: 100,
}
const TASK = {
  taskKey: 1,
  taskId: 't',
  taskName: 'add',
  domainId: 'd',
  userKey: 1,
  isPaused: false,
  answers: { command: 'add' },
  function: null,
  inputs: [],
  exports: null,
}
const RUN = {
  runKey: null,
  state: null,
  reason: null,
  error: null,
  results: null,
  resultBytes: null,
  resultDigest: null,
}
const completed = { state: TASK_STATE.completed, deliveredSeconds: 1 }

/** One look at these commands. Returns the statements that settle them, and the turns of the event loop meanwhile. */
async function look(
  rows: readonly object[],
  deps: Partial<CommandRunsDeps> = {},
  onSettled = (_ended: () => unknown[]): void => undefined,
) {
  const written: { text: string; values: readonly unknown[] }[] = []
  let due = rows.map((row, index) => ({
    ...COMMAND,
    ...TASK,
    ...RUN,
    commandKey: index + 1,
    id: `m${index + 1}`,
    ...row,
  }))
  const { promise: settled, resolve } = Promise.withResolvers<void>()
  let turns = 0
  const query = ({ text, values = [] }: { text: string; values?: readonly unknown[] }) => {
    if (text.includes('AS is_due')) return Promise.resolve({ rows: due.length === 0 ? [] : [{ is_due: true }] })
    if (text.startsWith('WITH turns')) {
      const taken = due
      due = []
      turns = 0
      return Promise.resolve({ rows: taken })
    }
    written.push({ text, values })
    return Promise.resolve({ rows: [] })
  }
  const database = {
    db: { query },
    async transaction(work: (tx: object) => Promise<unknown>) {
      const transitions = await work({ query })
      resolve()
      return transitions
    },
  }
  const counting = (): void => {
    turns += 1
    setImmediate(counting).unref()
  }
  counting()
  const reader = startCommandRuns({
    database: database as unknown as Database,
    bus: createLocalBus(),
    access: { findUser: () => Promise.resolve({} as never), requireCommands: () => Promise.resolve() },
    runs: { startFor: () => Promise.reject(new Error('not expected')) },
    stopRun: () => Promise.resolve(),
    endings: { onEnd: () => () => undefined },
    logger: createLogger({ name: 'test', level: 'silent' }),
    intervalMs: 5,
    ...deps,
  })
  await settled
  const ends = () =>
    written.filter(({ text }) => text.trimStart().startsWith('UPDATE device_commands m SET status = n.status'))
  onSettled(() => ends().map(({ values }) => [values[0], values[3]]))
  await reader.stop()
  const [endOf] = ends()
  const again = written.find(({ text }) => text.startsWith('UPDATE command_runs'))
  return {
    ended: ends().map(({ values }) => [values[0], values[3]]),
    statuses: endOf?.values[1],
    reasons: endOf?.values[3],
    again: again?.values,
    turns,
  }
}

test('results are converted one in each turn of the event loop', async () => {
  const large = JSON.stringify(Array.from({ length: 2_000 }, (_, index) => 1_000 + index)).replaceAll(
    ',',
    '123456789012345,',
  )
  const results = { exit_code: 0, stdout: large, stderr: '' }
  const { statuses, turns } = await look(
    Array.from({ length: 20 }, (_, index) => ({ ...completed, runKey: index + 1, results, resultBytes: 60_000 })),
  )
  expect(statuses).toEqual(Array.from({ length: 20 }, () => 'succeeded'))
  expect(turns).toBeGreaterThanOrEqual(20)
})

test.each(['rate_limited', 'unavailable', 'timeout'] as const)(
  'a start that fails with %s is tried again',
  async (kind) => {
    const startFor = () => Promise.reject(new ServiceError(kind, 'too many'))
    const { statuses, again } = await look([{}], { runs: { startFor } })
    expect(statuses).toBeUndefined()
    expect(again).toEqual([[1], [1]])
  },
)

test('a manager awaits the ends of a bounded number of runs', async () => {
  const awaited = new Set<number>()
  let most = 0
  const onEnd = (runKey: number) => {
    awaited.add(runKey)
    most = Math.max(most, awaited.size)
    return () => void awaited.delete(runKey)
  }
  const rows = Array.from({ length: 1_500 }, (_, index) => ({
    state: TASK_STATE.running,
    deliveredSeconds: 1,
    runKey: index + 1,
  }))
  await look(rows, { endings: { onEnd } })
  expect(most).toBe(1_000)
  expect(awaited.size).toBe(0)
})

test('a command that a device of an earlier node has gets its run, and fails if its run was removed', async () => {
  const startFor = (runKey: number | undefined) => () => Promise.resolve({ runId: 'm1', runKey, taskKey: 1 })
  const delivered = { deliveredSeconds: 5 }
  expect(await look([delivered], { runs: { startFor: startFor(7) } })).toMatchObject({
    statuses: undefined,
    again: [[1], [2]],
  })
  const removed = await look([delivered], { runs: { startFor: startFor(undefined) } })
  expect([removed.statuses, removed.reasons]).toEqual([['failed'], ['the run of the task was removed']])
  const old = await look([{ deliveredSeconds: 86_400 }])
  expect([old.statuses, old.reasons]).toEqual([['failed'], ['the run of the task was removed']])
})

test('a start that is refused rejects its command', async () => {
  const startFor = () => Promise.reject(new ServiceError('quota_exceeded', 'the quota is reached'))
  const { statuses, reasons } = await look([{}], { runs: { startFor } })
  expect([statuses, reasons]).toEqual([['rejected'], ['the quota is reached']])
})

test(
  'a start that takes long holds no command of another task of its domain, and is written when it has ended',
  { timeout: 60_000 },
  async () => {
    const slow = Promise.withResolvers<never>()
    const startFor = ({ taskId }: { taskId: string }) =>
      taskId === 'slow' ? slow.promise : Promise.reject(new ServiceError('quota_exceeded', 'the quota is reached'))
    let first: unknown
    const { ended } = await look([{ taskId: 'slow', taskKey: 2 }, {}], { runs: { startFor } }, (known) => {
      first = known()
      slow.reject(new ServiceError('unprocessable', 'the module does not exist'))
    })
    expect(first).toEqual([[[2], ['the quota is reached']]])
    expect(ended).toEqual([
      [[2], ['the quota is reached']],
      [[1], ['the module does not exist']],
    ])
  },
)
