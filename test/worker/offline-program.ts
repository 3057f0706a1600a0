/**
 * A worker's offline tasks on a disk, with a clock that is much faster than the machine's, until the process is killed. It says which ticks begin and
 * which results are kept. `npx node offline-program.ts FOLDER WALL_MS (requeue|fail)`
 */
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import { createLogger } from '#core/logging/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { OfflineTaskSchema, OfflineTasksSchema, OnLost } from '#proto/index.ts'
import { OfflineStore, OfflineTasks } from '#worker/offline/index.ts'
import { Spool } from '#worker/spool/index.ts'

const [folder = '', wall = '0', onLost = 'requeue'] = process.argv.slice(2)
/** A second of the schedule takes this share of a second. */
const SPEED = 20
const RUN_MS = 10

const say = (line: string) => process.stdout.write(`${line}\n`)
const beganMs = monotonicMs()
const wallNow = () => Math.round(Number(wall) + (monotonicMs() - beganMs) * SPEED)
const spool = await Spool.open(join(folder, 'spool'), { maxBytes: 64 * 1024 * 1024 })
for (const { key } of spool.results()) say(`kept ${key}`)
const offline = await OfflineTasks.start({
  store: new OfflineStore(join(folder, 'offline'), createLogger({ name: 'test', level: 'silent' })),
  modules: { get: () => Promise.resolve({ path: '', release: () => undefined }) },
  runs: {
    refusalOfTick: () => undefined,
    async runTick({ run }, { tickMs }) {
      say(`begin ${run.runId} ${tickMs}`)
      await sleep(RUN_MS)
      await spool.add(run.runId, Buffer.from('result'))
      say(`kept ${run.runId}`)
      return true
    },
    async loseTick({ run }) {
      await spool.add(run.runId, Buffer.from('lost'))
      say(`lost ${run.runId}`)
    },
    hasResult: ({ run }) => spool.find(run.runId) !== undefined,
    reportTick: ({ run }) => say(`report ${run.runId}`),
  },
  clocks: { now: monotonicMs, wallNow },
  isPlatformOnly: false,
  logger: createLogger({ name: 'test', level: 'silent' }),
  checkMs: 5,
})
if (offline.count === 0) {
  const task = create(OfflineTaskSchema, {
    version: 'v1',
    schedule: '* * * * * *',
    timezone: 'UTC',
    firstTickMs: BigInt(Math.ceil(Number(wall) / 1_000) * 1_000),
    assignment: {
      run: { runId: '', attempt: 1, fence: 7n },
      taskId: '11111111-1111-4111-8111-111111111111',
      module: { digest: `sha256:${'0'.repeat(64)}`, sizeBytes: 1n },
      limits: { timeoutMs: 1n, memoryLimitBytes: 1n, maxOutputBytes: 1n, maxResultBytes: 1n },
      onLost: onLost === 'fail' ? OnLost.FAIL : OnLost.REQUEUE,
    },
  })
  offline.replace(create(OfflineTasksSchema, { tasks: [task], nowMs: BigInt(wall) }))
}
say('started')
