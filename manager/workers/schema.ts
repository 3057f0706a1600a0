/** Wire shapes of workers and of placements (specification section Worker node, task-manager.md section 1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { SECRET, documented, recordOf } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatTime } from '#core/time.ts'
import { Timestamp } from '../tasks/schema.ts'
import type { WorkerRecord } from '../store/workers.ts'

const PAGE_LIMIT = 100

export const WorkerId = Type.String({ maxLength: 64, description: 'UUID', ...documented({ format: 'uuid' }) })

export const Worker = Type.Object(
  {
    id: WorkerId,
    name: Type.String(),
    alive: Type.Boolean(),
    free_slots: Type.Integer(),
    task_count: Type.Optional(Type.Integer({ description: 'Number of runs that are assigned to it' })),
    alive_history: Type.Optional(Type.Array(Timestamp, { description: 'The last ten heartbeats' })),
    state: Type.Optional(Type.Enum(['alive', 'draining', 'dead', 'revoked'])),
    labels: Type.Optional(recordOf(Type.String())),
    slots: Type.Optional(Type.Integer()),
    cpu_cores: Type.Optional(Type.Integer()),
    memory_bytes: Type.Optional(Type.Integer()),
    runtimes: Type.Optional(Type.Array(Type.String())),
    isolation: Type.Optional(
      Type.String({
        description: 'Isolation level of its guests: namespace (strongest), uid or process (weakest); empty: unknown',
      }),
    ),
    platform_only: Type.Optional(
      Type.Boolean({
        description: 'True if it accepts no tasks of domains, because its isolation level is too weak for its machine',
      }),
    ),
    version: Type.Optional(Type.String()),
    os: Type.Optional(Type.String()),
    arch: Type.Optional(Type.String()),
    domain_id: Type.Optional(Type.String()),
    cached_modules: Type.Optional(
      Type.Array(Type.String(), { description: 'Digests of cached modules that this manager knows' }),
    ),
    last_alive_at: Type.Optional(Timestamp),
    created_at: Type.Optional(Timestamp),
  },
  {
    $id: 'Worker',
    description:
      'Worker. Callers other than the platform administrator see only id, name, alive, slots, free_slots, task_count and alive_history of platform workers',
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

/** An empty body: a token of the platform or of the only domain, for one worker, for an hour. */
export const NewWorkerToken = Type.Object(
  {
    domain_id: Type.Optional(
      Type.Union([WorkerId, Type.Null()], {
        description: 'Domain of the workers; without it they run tasks of every domain',
      }),
    ),
    uses: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_TOKEN_USES,
        description: 'Number of workers that can join with it; default: 1',
      }),
    ),
    expires_in: Type.Optional(
      Type.String({
        maxLength: 64,
        description: 'Go duration, at most 1h',
        ...documented({ pattern: DURATION_PATTERN }),
      }),
    ),
  },
  { $id: 'WorkerTokenCreate' },
)
export type NewWorkerToken = Static<typeof NewWorkerToken>

export const WorkerToken = Type.Object(
  {
    id: WorkerId,
    token: Type.String({
      ...SECRET,
      description:
        'Shown once. A worker reads it from a file: `npm run worker -- --manager HOST:PORT --token-file FILE`',
    }),
    domain_id: Type.Optional(WorkerId),
    uses: Type.Integer(),
    expires_at: Timestamp,
  },
  { $id: 'WorkerToken', description: 'Join token of workers' },
)

export const Placement = Type.Object({
  run_id: Type.Union([WorkerId, Type.Null()]),
  reason: Type.String({ description: 'The reason why the newest run of the task waits, or its worker' }),
  position: Type.Optional(
    Type.Integer({
      minimum: 0,
      description:
        'Position of its component in the transpilation queue of its worker; 0: being transpiled. As of the last heartbeat, at the manager that holds the session of the worker',
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

/** `whole` is false for a caller who can only see the load of a platform worker. */
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
