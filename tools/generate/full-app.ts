/** All parts of Skein as one HTTP app with a database of its own and the list of its routes; no HTTP port is opened. */
import { randomBytes } from 'node:crypto'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FastifyInstance, RouteOptions } from 'fastify'
import { IDENTITY_SETTINGS, startApi } from '#api/index.ts'
import type { Api } from '#api/index.ts'
import { readConfig } from '#core/config/index.ts'
import type { DatabaseAddress } from '#core/database/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#infrastructure/index.ts'
import { HTTP_SETTINGS, createHttpApp, createMetrics } from '#http/index.ts'
import type { HttpApp } from '#http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { createLifecycle } from '#core/program/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { MANAGER_SETTINGS, createTaskAccess, startManager } from '#manager/index.ts'

export type FullApp = AsyncDisposable & {
  readonly app: HttpApp
  readonly api: Api
  readonly keyring: Keyring
  /** The routes in the order of registration, without the HEAD routes that Fastify adds. */
  readonly routes: readonly RouteOptions[]
  /** Those of `routes` that the task manager serves. */
  readonly managerRoutes: readonly RouteOptions[]
}

/** Credentials of the platform administrator. */
export const FULL_APP_ADMIN = {
  SKEIN_ADMIN_EMAIL: 'admin@example.com',
  SKEIN_ADMIN_USERNAME: 'admin',
  SKEIN_ADMIN_SECRET: 'the-first-admin',
}

/** `changed`: settings that differ from those for the generated documents. */
export async function startFullApp(
  address: DatabaseAddress,
  changed: Readonly<Record<string, string>> = {},
): Promise<FullApp> {
  const logger = createLogger({ name: 'generate', level: 'silent' })
  const dataDir = mkdtempSync(join(tmpdir(), 'skein-full-app-'))
  const environment = {
    ...FULL_APP_ADMIN,
    SKEIN_DATA_DIR: dataDir,
    SKEIN_SECRET_KEY: randomBytes(32).toString('base64'),
    SKEIN_DATABASE_UNSAFE: 'true',
    SKEIN_MANAGER_GRPC_PORT: '0',
    SKEIN_MANAGER_AUTH: 'on',
    ...changed,
  }
  const http = readConfig(HTTP_SETTINGS, environment)
  const life = createLifecycle(logger)
  const close = async () => {
    await life.stop()
    rmSync(dataDir, { recursive: true, force: true })
  }
  try {
    const config = readConfig(INFRASTRUCTURE_SETTINGS, environment)
    const infrastructure = await startInfrastructure(life, {
      config,
      logger,
      kind: 'generate',
      maxConnections: 4,
      address,
    })
    const { database, bus, keyring, streams, dataDir, build } = infrastructure
    const api = await startApi(life, { infrastructure, config: readConfig(IDENTITY_SETTINGS, environment) })
    const manager = await life.start('task manager', async () => {
      const managerConfig = readConfig(MANAGER_SETTINGS, environment)
      const value = await startManager({
        config: managerConfig,
        database,
        bus,
        keyring,
        access: createTaskAccess({
          database,
          access: api.identity.access,
          quotas: api.identity.quotas,
          authenticate: api.authenticate,
          mode: managerConfig.auth,
          corsOrigins: http.corsOrigins,
        }),
        streams,
        dataDir,
        logger,
      })
      return { value, stop: () => value.stop() }
    })
    const { value: app, routes } = watchRoutes(() =>
      createHttpApp({
        logger,
        health: { build, metrics: createMetrics(), readiness: infrastructure.readiness, serviceOf: () => 'skein' },
        maxBodyBytes: http.maxBodyBytes,
        corsOrigins: http.corsOrigins,
        trustProxy: http.trustProxy,
        keyring,
        authenticate: api.authenticate,
      }),
    )
    await life.start('HTTP app', () => Promise.resolve({ value: app, stop: async () => await app.close() }))
    await api.routes(app)
    // Routes of plugins are registered when the plugin is loaded.
    await app.after()
    const before = routes.length
    await manager.routes(app)
    await app.ready()
    const managerRoutes = routes.slice(before)
    return { app, api, keyring, routes, managerRoutes, [Symbol.asyncDispose]: close }
  } catch (error) {
    await close()
    throw error
  }
}

/**
 * Records every route of the app that `create` builds. Fastify announces a new instance before any registration; a later
 * hook would miss the first routes.
 */
function watchRoutes<T>(create: () => T): { value: T; routes: RouteOptions[] } {
  const routes: RouteOptions[] = []
  const watch = (message: unknown) => {
    const { fastify } = message as { fastify: FastifyInstance }
    fastify.addHook('onRoute', (route) => {
      if (route.method !== 'HEAD') routes.push(route)
    })
  }
  subscribe('fastify.initialization', watch)
  try {
    return { value: create(), routes }
  } finally {
    unsubscribe('fastify.initialization', watch)
  }
}
