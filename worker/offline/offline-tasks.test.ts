// decision 0161: ticks of offline tasks by a clock of the test, without a manager
import { create } from '@bufbuild/protobuf'
import { expect, test, vi } from 'vitest'
import { createLogger } from '#core/logging/index.ts'
import { OfflineTaskSchema, OfflineTasksSchema, OnLost, idOfTick } from '#proto/index.ts'
import type { OfflineTask, OfflineTasks as OfflineTasksMessage } from '#proto/index.ts'
import type { CheckedAssignment } from '../session/run-messages.ts'
import { OfflineTasks } from './offline-tasks.ts'
import type { TickRun } from './offline-tasks.ts'
import type { Written } from './store.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
const YEAR = 365 * DAY
const NOON = Date.parse('2026-11-30T12:00:00Z')
const TASK = '11111111-1111-4111-8111-111111111111'
const logger = createLogger({ name: 'test', level: 'silent' })

type Given = {
  schedule?: string
  fence?: bigint
  version?: string
  catchUp?: boolean
  onLost?: OnLost
  firstTickMs?: number
}

const offlineTask = ({ schedule = '* * * * *', fence = 7n, version = 'v1', ...given }: Given = {}): OfflineTask =>
  create(OfflineTaskSchema, {
    version,
    schedule,
    timezone: 'UTC',
    catchUp: given.catchUp ?? false,
    firstTickMs: BigInt(given.firstTickMs ?? NOON),
    assignment: {
      run: { runId: '', attempt: 1, fence },
      taskId: TASK,
      module: { digest: `sha256:${'0'.repeat(64)}`, sizeBytes: 1n },
      limits: { timeoutMs: 1n, memoryLimitBytes: 1n, maxOutputBytes: 1n, maxResultBytes: 1n },
      onLost: given.onLost ?? OnLost.REQUEUE,
    },
  })

/** The disk, the clocks and the runner of a worker; its processes come and go. */
class Machine {
  wallMs = NOON - 1
  monotonicMs = 0
  tasks: OfflineTask[] = []
  written: Written = { times: { managerMs: 0, clockMs: 0 }, tasks: {} }
  isDiskFull = false
  /** Writes wait for it. */
  disk: Promise<void> = Promise.resolve()
  canFetch = true
  refusal: string | undefined
  readonly results = new Set<string>()
  readonly ran: { id: string; tickMs: number; missed: number }[] = []
  readonly lost: string[] = []
  readonly reported: string[] = []
  readonly pinned = new Set<string>()
  /** What a run does; it ends at once with a result otherwise. */
  run: (id: string, tick: TickRun) => Promise<boolean> = () => Promise.resolve(true)

  start(): Promise<OfflineTasks> {
    return OfflineTasks.start({
      store: {
        read: () => Promise.resolve({ tasks: this.tasks, written: structuredClone(this.written) }),
        writeTasks: async (message: OfflineTasksMessage) => {
          if (this.isDiskFull) throw new Error('no space left on device')
          this.tasks = message.tasks
          this.written = { ...this.written, times: { ...this.written.times, managerMs: Number(message.nowMs) } }
        },
        writeProgress: async (written) => {
          await this.disk
          if (this.isDiskFull) throw new Error('no space left on device')
          this.written = structuredClone(written)
        },
      },
      modules: {
        get: async ({ digest }) => {
          if (!this.canFetch) throw new Error('the proxy does not answer')
          this.pinned.add(digest)
          return { path: '', release: () => void this.pinned.delete(digest) }
        },
      },
      runs: {
        refusalOfTick: () => this.refusal,
        runTick: async ({ run }: CheckedAssignment, tick) => {
          this.ran.push({ id: run.runId, tickMs: tick.tickMs, missed: tick.missed })
          const hasEnded = await this.run(run.runId, tick)
          if (hasEnded) this.results.add(run.runId)
          return hasEnded
        },
        loseTick: async ({ run }) => void this.lost.push(run.runId),
        hasResult: ({ run }) => this.results.has(run.runId),
        reportTick: ({ run }) => void this.reported.push(run.runId),
      },
      clocks: { now: () => this.monotonicMs, wallNow: () => this.wallMs },
      isPlatformOnly: false,
      logger,
      // The tests look at the clock themselves.
      checkMs: 2 ** 30,
      repeatMs: 1,
    })
  }

  pass(ms: number): void {
    this.wallMs += ms
    this.monotonicMs += ms
  }

  get ticks(): string[] {
    return this.ran.map(({ tickMs }) => new Date(tickMs).toISOString().slice(0, 16))
  }
}

const give = (offline: OfflineTasks, machine: Machine, tasks: OfflineTask[]) =>
  offline.replace(create(OfflineTasksSchema, { tasks, nowMs: BigInt(Math.max(machine.wallMs, 0)) }))

/** A worker to which a manager has given the task. */
async function startWith(task = offlineTask(), machine = new Machine()) {
  const offline = await machine.start()
  give(offline, machine, [task])
  await vi.waitUntil(() => machine.tasks.length === 1, { timeout: 30_000 })
  return { machine, offline }
}

/** Looks at the clock, and waits for the end of what begins. */
async function look(offline: OfflineTasks, machine: Machine): Promise<void> {
  const [ran, reported] = [machine.ran.length, machine.reported.length]
  await offline.startDue()
  if (machine.ran.length === ran) return
  await vi.waitUntil(() => machine.reported.length > reported, { timeout: 30_000, interval: 1 })
}

/** Lets the clock go, and looks at it in these steps. */
async function live(offline: OfflineTasks, machine: Machine, ms: number, stepMs = MINUTE): Promise<void> {
  for (let left = ms; left > 0; left -= stepMs) {
    machine.pass(stepMs)
    await look(offline, machine)
  }
}

test('a day without a manager has each tick once, and its result is reported after the tick is known to have ended', async () => {
  const { machine, offline } = await startWith(offlineTask({ schedule: '0 * * * *' }))
  await live(offline, machine, DAY)
  expect(machine.ticks).toHaveLength(24)
  expect(new Set(machine.ran.map(({ id }) => id)).size).toBe(24)
  expect(machine.ticks[0]).toBe('2026-11-30T12:00')
  expect(machine.ticks.at(-1)).toBe('2026-12-01T11:00')
  expect(machine.reported).toEqual(machine.ran.map(({ id }) => id))
  expect(machine.ran[0]?.id).toBe(idOfTick(TASK, 7n, NOON))
  expect(machine.written.tasks[TASK]).toMatchObject({ fence: '7', started: null })
  await offline.close()
})

test('a clock that begins in 1970 goes on from the last known time, and its correction starts no year of ticks', async () => {
  const { machine, offline } = await startWith()
  await live(offline, machine, 3 * MINUTE)
  await offline.close()
  const before = machine.ran.length
  // A year later the device is switched on again, without a network.
  machine.wallMs = 12_000
  const again = await machine.start()
  await live(again, machine, 5 * MINUTE)
  expect(machine.ticks.slice(before)).toHaveLength(5)
  expect(machine.ticks[before]).toBe('2026-11-30T12:03')
  machine.wallMs = NOON + YEAR + 30_000
  await look(again, machine)
  await live(again, machine, 2 * MINUTE)
  const later = machine.ticks.slice(before + 5)
  expect(later).toEqual(['2027-11-30T12:00', '2027-11-30T12:01', '2027-11-30T12:02'])
  await again.close()
})

test('after a clock that was ahead for a while, ticks go on from the right time', async () => {
  const { machine, offline } = await startWith()
  machine.wallMs += 73 * YEAR
  await live(offline, machine, 2 * MINUTE)
  const wrong = machine.ran.length
  expect(wrong).toBeLessThanOrEqual(2)
  machine.wallMs = NOON + 10 * MINUTE + 30_000
  await look(offline, machine)
  await live(offline, machine, 2 * MINUTE)
  expect(machine.ticks.slice(wrong)).toEqual(['2026-11-30T12:11', '2026-11-30T12:12'])
  await offline.close()
})

test('a clock that is set back a little repeats no tick', async () => {
  const { machine, offline } = await startWith()
  await live(offline, machine, 5 * MINUTE)
  machine.wallMs -= 3 * MINUTE
  await live(offline, machine, 5 * MINUTE)
  expect(machine.ticks).toEqual([0, 1, 2, 3, 4, 5, 6].map((minute) => `2026-11-30T12:0${minute}`))
  await offline.close()
})

test.each([
  [true, ['2026-12-01T12:30']],
  [false, []],
])('after a day switched off, with catch_up %s', async (catchUp, expected) => {
  const { machine, offline } = await startWith(offlineTask({ schedule: '30 12 * * *', catchUp }))
  await offline.close()
  machine.pass(DAY + HOUR)
  const again = await machine.start()
  await again.startDue()
  await vi.waitUntil(() => machine.reported.length === expected.length, { timeout: 30_000 })
  expect(machine.ticks).toEqual(expected)
  await again.close()
})

test('a tick during the last run is missed and counted, and so is one that the worker refuses', async () => {
  const { machine, offline } = await startWith()
  const first = Promise.withResolvers<boolean>()
  machine.run = () => first.promise
  for (let minute = 0; minute < 3; minute++) {
    machine.pass(MINUTE)
    await offline.startDue()
  }
  expect(machine.ran).toHaveLength(1)
  machine.run = () => Promise.resolve(true)
  first.resolve(true)
  await vi.waitUntil(() => machine.reported.length === 1, { timeout: 30_000 })
  machine.refusal = 'the worker is draining'
  await live(offline, machine, MINUTE)
  machine.refusal = undefined
  await live(offline, machine, MINUTE)
  expect(machine.ran[1]).toMatchObject({ missed: 3, tickMs: NOON + 4 * MINUTE })
  await offline.close()
})

test('a tick that passes before a slow disk has stored the one before it is missed, and no two runs are under way', async () => {
  const machine = new Machine()
  machine.tasks = [offlineTask()]
  const offline = await machine.start()
  const { promise: stored, resolve: store } = Promise.withResolvers<void>()
  machine.disk = stored
  machine.pass(1)
  const first = offline.startDue()
  machine.pass(MINUTE)
  const second = offline.startDue()
  store()
  await Promise.all([first, second])
  await vi.waitFor(() => expect(machine.reported).toHaveLength(1), 30_000)
  expect(machine.ran.map(({ tickMs, missed }) => ({ tickMs, missed }))).toEqual([{ tickMs: NOON, missed: 0 }])
  machine.pass(MINUTE)
  await offline.startDue()
  await vi.waitFor(() => expect(machine.reported).toHaveLength(2), 30_000)
  expect(machine.ran.at(-1)).toMatchObject({ tickMs: NOON + 2 * MINUTE, missed: 1 })
  await offline.close()
})

test('a run that had no room begins again, as the same run', async () => {
  const { machine, offline } = await startWith()
  let left = 2
  machine.run = () => Promise.resolve(left-- === 0)
  await live(offline, machine, MINUTE)
  expect(new Set(machine.ran.map(({ id }) => id)).size).toBe(1)
  expect(machine.ran).toHaveLength(3)
  await offline.close()
})

test('a tick whose beginning the disk refuses is missed: nothing runs that a restart would not know', async () => {
  const { machine, offline } = await startWith()
  machine.isDiskFull = true
  await live(offline, machine, MINUTE)
  expect(machine.ran).toEqual([])
  machine.isDiskFull = false
  await live(offline, machine, MINUTE)
  expect(machine.ran).toMatchObject([{ missed: 1 }])
  await offline.close()
})

test.each([
  [OnLost.REQUEUE, { ran: 2, lost: 0 }],
  [OnLost.WAIT, { ran: 2, lost: 0 }],
  [OnLost.FAIL, { ran: 1, lost: 1 }],
])('a run that a kill has ended, with on_lost %s', async (onLost, { ran, lost }) => {
  const { machine } = await startWith(offlineTask({ onLost }))
  // The process is killed: what it waits for never comes.
  machine.run = () => new Promise(() => undefined)
  const killed = await machine.start()
  machine.pass(1)
  await killed.startDue()
  await vi.waitUntil(() => machine.ran.length === 1, { timeout: 30_000 })
  machine.run = () => Promise.resolve(true)
  const again = await machine.start()
  await vi.waitUntil(() => machine.reported.length === 1, { timeout: 30_000 })
  expect(new Set(machine.ran.map(({ id }) => id)).size).toBe(1)
  expect(machine.ran).toHaveLength(ran)
  expect(machine.lost).toHaveLength(lost)
  await again.startDue()
  expect(machine.ran).toHaveLength(ran)
  await again.close()
})

test('a run whose result was on disk before a kill is reported, and not run again', async () => {
  const { machine, offline } = await startWith()
  await live(offline, machine, 1)
  const [one] = machine.ran
  machine.written = {
    ...machine.written,
    tasks: { [TASK]: { fence: '7', lastTickMs: NOON, missed: 0, started: { tickMs: NOON, missed: 0 } } },
  }
  machine.reported.length = 0
  const again = await machine.start()
  await vi.waitUntil(() => machine.reported.length === 1, { timeout: 30_000 })
  expect(machine.reported).toEqual([one?.id])
  expect(machine.ran).toHaveLength(1)
  await again.close()
})

test('a damaged progress repeats no tick, and makes up no missed ones', async () => {
  const machine = new Machine()
  machine.tasks = [offlineTask({ catchUp: true, onLost: OnLost.FAIL })]
  machine.written = { times: { managerMs: NOON, clockMs: NOON }, tasks: {}, isDamaged: true }
  machine.pass(DAY)
  const offline = await machine.start()
  await offline.startDue()
  expect(machine.ran).toEqual([])
  machine.pass(MINUTE)
  await offline.startDue()
  await vi.waitFor(() => expect(machine.reported).toHaveLength(1), 30_000)
  expect(machine.ran).toMatchObject([{ tickMs: NOON + DAY, missed: 0 }])
  await offline.close()
})

test('a task that a manager takes away has no more ticks, and its run is ended', async () => {
  const { machine, offline } = await startWith()
  let isEnded = false
  machine.run = (_id, { signal }) =>
    new Promise((resolve) =>
      signal.addEventListener('abort', () => {
        isEnded = true
        resolve(false)
      }),
    )
  machine.pass(MINUTE)
  await offline.startDue()
  await vi.waitUntil(() => machine.ran.length === 1 && machine.pinned.size === 1, { timeout: 30_000 })
  give(offline, machine, [])
  await vi.waitUntil(() => isEnded, { timeout: 30_000 })
  await live(offline, machine, 3 * MINUTE)
  expect(machine.ran).toHaveLength(1)
  expect(machine.pinned.size).toBe(0)
  expect(machine.tasks).toEqual([])
  await offline.close()
})

test('a changed task begins at its new first tick, under its new fence', async () => {
  const { machine, offline } = await startWith()
  await live(offline, machine, 2 * MINUTE)
  const before = machine.ran.length
  give(offline, machine, [offlineTask({ fence: 9n, version: 'v2', firstTickMs: NOON + 5 * MINUTE })])
  await live(offline, machine, 5 * MINUTE)
  expect(machine.ran.slice(before)).toMatchObject([
    { id: idOfTick(TASK, 9n, NOON + 5 * MINUTE) },
    { id: idOfTick(TASK, 9n, NOON + 6 * MINUTE) },
  ])
  await offline.close()
})

test('a task is ready when it and its module are on disk, and its ticks are not the worker’s before a manager gives it a fence', async () => {
  const machine = new Machine()
  const ready: unknown[] = []
  const offline = await machine.start()
  offline.connect((tasks) => ready.push(...tasks))
  machine.canFetch = false
  give(offline, machine, [offlineTask({ fence: 0n })])
  await vi.waitUntil(() => machine.tasks.length === 1, { timeout: 30_000 })
  await live(offline, machine, 3 * MINUTE)
  expect(ready).toEqual([])
  machine.canFetch = true
  give(offline, machine, [offlineTask({ fence: 0n })])
  await vi.waitUntil(() => ready.length === 1, { timeout: 30_000 })
  expect(ready).toEqual([{ taskId: TASK, version: 'v1' }])
  expect(machine.ran).toEqual([])
  await offline.close()
})

test('a schedule that the worker cannot read stops no other task', async () => {
  const other = offlineTask()
  const unreadable = create(OfflineTaskSchema, { ...offlineTask(), schedule: 'nonsense' })
  if (unreadable.assignment !== undefined)
    unreadable.assignment = { ...unreadable.assignment, taskId: '22222222-2222-4222-8222-222222222222' }
  const machine = new Machine()
  const offline = await machine.start()
  give(offline, machine, [unreadable, other])
  await live(offline, machine, 2 * MINUTE)
  expect(machine.ran).toHaveLength(2)
  await offline.close()
})
