/** `npm run manager`: runs the task manager only; the platform and the proxy run elsewhere, and workers connect to it. */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { IDENTITY_SETTINGS, createChannelReader } from '#api/index.ts'
import {
  INFRASTRUCTURE_METRICS,
  INFRASTRUCTURE_SETTINGS,
  startInfrastructure,
  startGaugeCollection,
} from '#infrastructure/index.ts'
import { HTTP_SETTINGS, createHttpServer, createMetrics, startTlsFiles } from '#http/index.ts'
import { runProgram } from '#core/program/index.ts'
import {
  MANAGER_METRICS,
  MANAGER_SETTINGS,
  effectiveAuthMode,
  managerGauges,
  readGrpcTlsFiles,
  startManager,
  startTaskAccess,
} from '#manager/index.ts'
import { SEALED_COLUMNS } from '#api/config.ts'

/** Connections of the pool; the run writer and the journal's reader have their own. */
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
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  otherSettings: async () => (await import('./every-setting.ts')).EVERY_SETTING,
  async run(life, config, logger) {
    // The files are read before the database is started, so that a wrong path is reported at once.
    const files = await startTlsFiles(life, config.http, logger)
    await readGrpcTlsFiles(config.manager)
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
        mode: effectiveAuthMode(config.manager.auth, {
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
    infrastructure.readiness.add(...manager.checks)
    await startGaugeCollection(life, infrastructure, managerGauges(infrastructure.database))
    const http = await createHttpServer(life, {
      config: config.http,
      logger,
      build: infrastructure.build,
      readiness: infrastructure.readiness,
      metrics: createMetrics([...INFRASTRUCTURE_METRICS, ...MANAGER_METRICS]),
      streams: infrastructure.streams,
      keyring: infrastructure.keyring,
      files,
      ports: [{ port: config.manager.httpPort, isOptional: false, setting: 'SKEIN_MANAGER_HTTP_PORT' }],
      serviceOf: () => 'manager',
      authenticate,
      routes: [manager.routes],
    })
    const { ports } = await http.listen()
    logger.info(
      `the task manager is at ${http.scheme}://${config.http.host}:${ports[0]}, workers connect to ${manager.grpcAddress}`,
    )
    logger.info(
      `a worker joins with: npm run worker -- --manager HOST:PORT --token-file FILE, with a copy of ${join(config.infrastructure.dataDir, 'worker-token')}`,
    )
  },
})
