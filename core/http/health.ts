/** `GET /health` and `GET /metrics` on every port, without authentication (contract section 11). */
import { Type } from 'typebox'
import type { BuildInfo } from '../build-info.ts'
import { newId } from '../ids.ts'
import type { Metrics } from './metrics.ts'
import type { HttpApp } from './app.ts'

export type HealthOptions = {
  build: BuildInfo
  metrics: Metrics
  /** Which service answers on a port, for the `description`. */
  serviceOf: (port: number | undefined) => string
}

export const Health = Type.Object(
  {
    status: Type.Literal('pass'),
    version: Type.String(),
    commit: Type.String(),
    description: Type.String({ description: '`<service> service`' }),
    build_time: Type.String(),
    instance_id: Type.String({ description: 'Random per process' }),
  },
  { $id: 'Health', description: 'Health record' },
)

export function registerHealth(app: HttpApp, { build, metrics, serviceOf }: HealthOptions): void {
  const instanceId = newId()
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
      }
    },
  )
  app.get(
    '/metrics',
    {
      config: { isPublic: true, mediaType: 'text/plain' },
      schema: { tags: ['health'], summary: 'Prometheus metrics', response: { 200: Type.String() } },
    },
    async (_request, reply) => {
      void reply.type(metrics.registry.contentType)
      return await metrics.registry.metrics()
    },
  )
}
