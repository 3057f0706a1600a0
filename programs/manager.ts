/** `npm run manager`: the task manager alone; workers dial in, the platform and the proxy run elsewhere. */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { IDENTITY_SETTINGS, createChannelReader } from '#api/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#core/infrastructure/index.ts'
import { HTTP_SETTINGS, createMetrics, startHttpServer } from '#core/http/index.ts'
import { runProgram } from '#core/program/index.ts'
import { MANAGER_SETTINGS, authModeOf, startManager, startTaskAccess } from '#manager/index.ts'
import { SEALED_COLUMNS } from '#api/config.ts'

/** Connections of the pool; the run writer and the journal's tail have their own. */
const MAX_CONNECTIONS = 16

await runProgram({
  name: 'manager',
  summary: 'Runs the task manager: tasks over HTTP, workers over gRPC.',
  settings: {
    infrastructure: INFRASTRUCTURE_SETTINGS,
    http: HTTP_SETTINGS,
    identity: IDENTITY_SETTINGS,
    manager: MANAGER_SETTINGS,
  },
  ownPrefixes: ['SKEIN_MANAGER_', 'SKEIN_GRPC_', 'SKEIN_DATABASE_', 'SKEIN_TLS_'],
  async run(life, config, logger) {
    const infrastructure = await startInfrastructure(life, {
      config: config.infrastructure,
      logger,
      kind: 'manager',
      maxConnections: MAX_CONNECTIONS,
      sealed: SEALED_COLUMNS,
    })
    const { access, authenticate } = await life.start('identity', async () => {
      const value = await startTaskAccess({
        infrastructure,
        config: config.identity,
        mode: authModeOf(config.manager.auth, {
          trustProxy: config.http.trustProxy,
          publicUrl: config.identity.publicUrl,
        }),
        corsOrigins: config.http.corsOrigins,
      })
      return { value, stop: () => value.stop() }
    })
    await mkdir(infrastructure.dataDir, { recursive: true })
    const manager = await life.start('task manager', async () => {
      const { database, bus, keyring, streams, dataDir } = infrastructure
      const value = await startManager({
        config: config.manager,
        database,
        bus,
        keyring,
        access,
        streams,
        dataDir,
        logger,
        tokenFile: join(infrastructure.dataDir, 'worker-token'),
        readChannel: createChannelReader(database),
        proxyTokenFile: join(infrastructure.dataDir, 'proxy-token'),
      })
      return { value, stop: () => value.stop() }
    })
    const { listeners, scheme } = await startHttpServer(life, {
      config: config.http,
      logger,
      build: infrastructure.build,
      metrics: createMetrics(),
      streams: infrastructure.streams,
      ports: [{ port: config.manager.httpPort, isOptional: false, setting: 'SKEIN_MANAGER_HTTP_PORT' }],
      serviceOf: () => 'manager',
      authenticate,
      routes: [manager.routes],
    })
    logger.info(
      `the task manager is at ${scheme}://${config.http.host}:${listeners.ports[0]}, workers dial ${manager.grpcAddress}`,
    )
    logger.info(
      `a worker joins with: npm run worker -- --manager HOST:PORT --token "$(cat ${join(config.infrastructure.dataDir, 'worker-token')})"`,
    )
  },
})
