/** `/proplets` of Propeller: workers in the shapes of its Go client (contract, decision 63). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { NoBody, recordOf, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { offsetPageFields, offsetQuery, pageFields, pageQuery } from '#core/page.ts'
import { ZERO_TIME } from '#core/time.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { Timestamp } from '../tasks/schema.ts'
import { Worker, WorkerId } from './schema.ts'
import type { WorkersService } from './service.ts'

const tags = ['workers']
const PAGE_LIMIT = 100
const Params = Type.Object({ proplet_id: WorkerId })
/** A list that is not stored. */
const Page = Type.Object(offsetQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }))

const Proplet = Type.Object(
  {
    ...Worker.properties,
    alive_history: Type.Array(Timestamp),
    alive_at: Type.Array(Timestamp, { description: 'Another name of `alive_history`' }),
    last_alive_at: Timestamp,
    metadata: recordOf(Type.Unknown(), { description: 'Facts about the machine, for callers who may read the worker' }),
  },
  { $id: 'Proplet', description: 'Worker in the shape of Propeller' },
)
type Proplet = Static<typeof Proplet>

const Measured = Type.Object({
  proplet_id: WorkerId,
  timestamp: Timestamp,
  memory_metrics: Type.Object({ rss_bytes: Type.Integer({ description: 'The worker and its runner processes' }) }),
})

const PropletQuery = Type.Object({
  ...pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }),
  status: Type.Optional(Type.Enum(['active', 'inactive'])),
})

function presentProplet(worker: Worker): Proplet {
  const history = worker.alive_history ?? []
  const { os, arch, memory_bytes: memory, version, runtimes, labels } = worker
  const metadata = {
    os,
    cpu_arch: arch,
    total_memory_bytes: memory,
    proplet_version: version,
    wasm_runtime: runtimes,
    labels,
  }
  return {
    ...worker,
    alive_history: history,
    alive_at: history,
    last_alive_at: worker.last_alive_at ?? history.toSorted().at(-1) ?? ZERO_TIME,
    metadata: Object.fromEntries(Object.entries(metadata).filter(([, value]) => value !== undefined)),
  }
}

export function propletRoutes({ workers, callers }: { workers: WorkersService; callers: Callers }): RoutePlugin {
  const { onRequest } = callers
  const config = (action: string) => ({ action, ownCredentials: BEARER })
  return (app) => {
    app.get(
      '/proplets',
      {
        onRequest,
        config: config('worker_read'),
        schema: {
          tags,
          summary: 'List workers in the shape of proplets',
          querystring: PropletQuery,
          response: responses({ 200: Type.Object({ ...pageFields, proplets: Type.Array(Proplet) }) }),
        },
      },
      async (request) => {
        const { offset, limit, cursor, status } = request.query
        const alive = status === undefined ? undefined : status === 'active'
        const page = await workers.list(callers.of(request), { offset, limit, cursor, alive })
        return { offset, limit, total: page.total, proplets: page.workers.map(presentProplet), next: page.next }
      },
    )
    app.get(
      '/proplets/:proplet_id',
      {
        onRequest,
        config: config('worker_read'),
        schema: {
          tags,
          summary: 'View a worker in the shape of a proplet',
          params: Params,
          response: responses({ 200: Proplet }, 'not_found'),
        },
      },
      async (request) => presentProplet(await workers.get(callers.of(request), request.params.proplet_id)),
    )
    app.get(
      '/proplets/:proplet_id/alive-history',
      {
        onRequest,
        config: config('worker_read'),
        schema: {
          tags,
          summary: 'List the last ten heartbeats of a worker',
          params: Params,
          querystring: Page,
          response: responses(
            { 200: Type.Object({ ...offsetPageFields, history: Type.Array(Timestamp) }) },
            'not_found',
          ),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const { alive_history: beats = [] } = await workers.get(callers.of(request), request.params.proplet_id)
        return { offset, limit, total: beats.length, history: beats.slice(offset, offset + limit) }
      },
    )
    app.get(
      '/proplets/:proplet_id/metrics',
      {
        onRequest,
        config: config('worker_read'),
        schema: {
          tags,
          summary: 'View what a worker measured last',
          description:
            'Measurements are not kept: the list has the ones of the last heartbeat, or none at a manager that does not hold the session of the worker.',
          params: Params,
          querystring: Page,
          response: responses(
            { 200: Type.Object({ ...offsetPageFields, metrics: Type.Array(Measured) }) },
            'not_found',
          ),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const { proplet_id: id } = request.params
        const { worker, measured } = await workers.measured(callers.of(request), id)
        const { last_alive_at: timestamp } = presentProplet(worker)
        const all =
          measured === undefined
            ? []
            : [{ proplet_id: id, timestamp, memory_metrics: { rss_bytes: measured.residentBytes } }]
        return { offset, limit, total: all.length, metrics: all.slice(offset, offset + limit) }
      },
    )
    app.delete(
      '/proplets/:proplet_id',
      {
        onRequest,
        config: config('worker_manage'),
        schema: {
          tags,
          summary: 'Delete a worker',
          description: 'As `DELETE /workers/{worker_id}`.',
          params: Params,
          response: responses({ 204: NoBody }, 'not_found', 'invalid_state'),
        },
      },
      async (request, reply) => {
        await workers.remove(callers.of(request), request.params.proplet_id)
        void reply.code(204)
        return null
      },
    )
  }
}
