/** `GET /health`, `GET /ready` and `GET /metrics` on every port, without authentication (contract section 11). */
import { Type } from 'typebox'
import type { BuildInfo } from '#core/build-info.ts'
import { PROTOCOL_STATUS } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import { pacedWork } from '#core/paced.ts'
import type { Readiness, ReadinessReport } from '#core/readiness/index.ts'
import type { Metrics } from './metrics.ts'
import type { HttpApp } from './app.ts'
import { KeptAnswer, sendKept } from './answers/kept-answers.ts'

export type HealthOptions = {
  build: BuildInfo
  metrics: Metrics
  /** The state of the dependencies of the program. */
  readiness: Readiness
  /** The name of the service on a port, for the `description`. */
  serviceOf: (port: number | undefined) => string
  /** Set when several processes answer for one program: `/ready` and `/metrics` then report all of them. */
  whole?: Whole | undefined
}

/** The reports of all processes of a program. */
export type Whole = {
  /** The name of this process. */
  readonly process: string
  /** Resolves within a deadline: to the report of this process alone when the others cannot be asked. */
  readiness(): Promise<ReadinessReport>
  /** Resolves within a deadline, in the text format of Prometheus, without processes that do not answer. */
  metrics(): Promise<string>
}

export const Health = Type.Object(
  {
    status: Type.Literal('pass'),
    version: Type.String(),
    commit: Type.String(),
    description: Type.String({ description: '`<service> service`' }),
    build_time: Type.String(),
    instance_id: Type.String({ description: 'Random id of the process' }),
    process: Type.Optional(Type.String({ description: 'Name of the process, where several answer on one port' })),
  },
  { $id: 'Health', description: 'Health record' },
)

const Status = Type.Union([Type.Literal('ready'), Type.Literal('degraded'), Type.Literal('unavailable')])

export const Ready = Type.Object(
  {
    status: Status,
    checks: Type.Record(
      Type.String(),
      Type.Object({
        status: Status,
        reason: Type.Optional(
          Type.String({ description: 'Why the dependency cannot be used; absent while it is ready' }),
        ),
        since: Type.String({ format: 'date-time', description: 'When this status began' }),
      }),
      { description: 'What the program depends on, by name' },
    ),
  },
  {
    $id: 'Ready',
    description:
      'Readiness. `unavailable` (503): requests would fail. `degraded` (200): requests are served, some of them slower or not completely.',
  },
)

/** Metrics are rendered at most once in this time, for all callers, who need no credentials. */
export const METRICS_INTERVAL_MS = 1000
/** The quality for a text that is kept for a second: compressing a megabyte takes 4 ms of a background thread. */
const QUALITY = 4
/** The time after which a load balancer may ask again. */
const RETRY_SECONDS = 1

export function registerHealth(app: HttpApp, { build, metrics, readiness, serviceOf, whole }: HealthOptions): void {
  const instanceId = newId()
  const { contentType } = metrics.registry
  const rendered = pacedWork(
    async () => new KeptAnswer(contentType, await (whole ?? metrics.registry).metrics(), { quality: QUALITY }),
    METRICS_INTERVAL_MS,
  )
  app.get(
    '/health',
    {
      config: { isPublic: true },
      schema: { tags: ['health'], summary: 'Whether the service is up', response: { 200: Health } },
    },
    (request, reply) => {
      const wantsHealthJson = request.headers.accept?.includes('application/health+json') === true
      void reply.type(wantsHealthJson ? 'application/health+json' : 'application/json')
      return {
        status: 'pass' as const,
        version: build.version,
        commit: build.commit,
        description: `${serviceOf(request.raw.socket.localPort)} service`,
        build_time: build.buildTime,
        instance_id: instanceId,
        ...(whole === undefined ? {} : { process: whole.process }),
      }
    },
  )
  app.get(
    '/ready',
    {
      config: { isPublic: true },
      schema: {
        tags: ['health'],
        summary: 'Whether the service can serve, and what it lacks',
        response: { 200: Ready, [PROTOCOL_STATUS.unavailable.http]: Ready },
      },
    },
    async (_request, reply) => {
      const report = whole === undefined ? readiness.read() : await whole.readiness()
      void reply.header('cache-control', 'no-store')
      if (report.status === 'unavailable')
        void reply.code(PROTOCOL_STATUS.unavailable.http).header('retry-after', RETRY_SECONDS)
      return report
    },
  )
  app.get(
    '/metrics',
    {
      config: { isPublic: true, mediaType: 'text/plain' },
      schema: {
        tags: ['health'],
        summary: 'Prometheus metrics',
        description: 'At most a second old.',
        response: { 200: Type.String() },
      },
    },
    async (request, reply) => await sendKept(request, reply, await rendered(), 'no-store'),
  )
}
