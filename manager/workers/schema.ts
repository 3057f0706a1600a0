/** Wire shapes of workers and of placements (specification section Worker node, task-manager.md section 1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { recordOf, shown } from '#core/http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatTime } from '#core/time.ts'
import { Timestamp } from '../tasks/schema.ts'
import type { WorkerRecord } from '../store/workers.ts'

const PAGE_LIMIT = 100

export const WorkerId = Type.String({ maxLength: 64, description: 'UUID', ...shown({ format: 'uuid' }) })

export const Worker = Type.Object(
  {
    id: WorkerId,
    name: Type.String(),
    alive: Type.Boolean(),
    free_slots: Type.Integer(),
    task_count: Type.Optional(Type.Integer({ description: 'Runs that it holds now' })),
    alive_history: Type.Optional(Type.Array(Timestamp, { description: 'The last ten signs of life' })),
    state: Type.Optional(Type.Enum(['alive', 'draining', 'dead', 'revoked'])),
    labels: Type.Optional(recordOf(Type.String())),
    slots: Type.Optional(Type.Integer()),
    cpu_cores: Type.Optional(Type.Integer()),
    memory_bytes: Type.Optional(Type.Integer()),
    runtimes: Type.Optional(Type.Array(Type.String())),
    isolation: Type.Optional(
      Type.String({ description: 'Of its guests: namespace, uid or process, the strongest first; empty: not known' }),
    ),
    platform_only: Type.Optional(
      Type.Boolean({ description: 'It runs no task of a domain: its isolation is too weak where it runs' }),
    ),
    version: Type.Optional(Type.String()),
    os: Type.Optional(Type.String()),
    arch: Type.Optional(Type.String()),
    domain_id: Type.Optional(Type.String()),
    cached_modules: Type.Optional(Type.Array(Type.String(), { description: 'Digests, as far as this manager knows' })),
    last_alive_at: Type.Optional(Timestamp),
    created_at: Type.Optional(Timestamp),
  },
  {
    $id: 'Worker',
    description:
      'Worker; those of the platform are shown to others than its administrator by id, name, alive, slots, free_slots, task_count and alive_history',
  },
)
export type Worker = Static<typeof Worker>

export const WorkerQuery = Type.Object({
  ...pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }),
  status: Type.Optional(Type.Enum(['alive', 'dead', 'draining'])),
  label: Type.Optional(Type.String({ maxLength: 513, description: 'key=value' })),
})
export type WorkerQuery = Static<typeof WorkerQuery>

export const WorkerPage = Type.Object({ ...pageFields, workers: Type.Array(Worker) })

const MAX_TOKEN_USES = 1_000

/** Nothing at all: a token of the platform or of the only domain, for one worker, for an hour. */
export const NewWorkerToken = Type.Object(
  {
    domain_id: Type.Optional(
      Type.Union([WorkerId, Type.Null()], {
        description: 'Domain whose tasks the workers will run; none: every domain',
      }),
    ),
    uses: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_TOKEN_USES,
        description: 'Workers that may join with it; 1 unless said',
      }),
    ),
    expires_in: Type.Optional(
      Type.String({ maxLength: 64, description: 'Go duration, at most 1h', ...shown({ pattern: DURATION_PATTERN }) }),
    ),
  },
  { $id: 'WorkerTokenCreate' },
)
export type NewWorkerToken = Static<typeof NewWorkerToken>

export const WorkerToken = Type.Object(
  {
    id: WorkerId,
    token: Type.String({ description: 'Shown once: `npm run worker -- --manager HOST:PORT --token TOKEN`' }),
    domain_id: Type.Optional(WorkerId),
    uses: Type.Integer(),
    expires_at: Timestamp,
  },
  { $id: 'WorkerToken', description: 'Join token of workers' },
)

export const Placement = Type.Object({
  run_id: Type.Union([WorkerId, Type.Null()]),
  reason: Type.String({ description: 'What the newest run of the task waits for, or where it is' }),
  position: Type.Optional(
    Type.Integer({
      minimum: 0,
      description:
        'Where its component is among those that its worker transpiles: 0, it is being transpiled; else its place among those that wait. As of the last heartbeat of the worker, at the manager that holds its session',
    }),
  ),
  workers: Type.Array(
    Type.Object({
      worker_id: WorkerId,
      name: Type.String(),
      chosen: Type.Boolean(),
      reason: Type.String(),
    }),
  ),
})

/** `whole` is false for a caller who may only see how busy a worker of the platform is. */
export function presentWorker(worker: WorkerRecord, cachedModules: readonly string[], whole: boolean): Worker {
  const freeSlots = worker.isAlive ? Math.max(worker.slots - worker.taskCount, 0) : 0
  const seen = {
    id: worker.id,
    name: worker.name,
    alive: worker.isAlive,
    slots: worker.slots,
    free_slots: freeSlots,
    task_count: worker.taskCount,
    alive_history: worker.aliveHistory.map(formatTime),
  }
  if (!whole) return seen
  return {
    ...seen,
    state: worker.isRevoked ? 'revoked' : worker.isAlive ? (worker.isDraining ? 'draining' : 'alive') : 'dead',
    labels: worker.labels,
    cpu_cores: worker.cpuCores,
    memory_bytes: worker.memoryBytes,
    runtimes: worker.runtimes,
    isolation: worker.isolation,
    platform_only: worker.isPlatformOnly,
    version: worker.version,
    os: worker.os,
    arch: worker.arch,
    ...(worker.domainId === null ? {} : { domain_id: worker.domainId }),
    cached_modules: [...cachedModules],
    last_alive_at: formatTime(worker.lastAliveAt),
    created_at: formatTime(worker.createdAt),
  }
}
