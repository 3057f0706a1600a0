/**
 * `npm run api`: runs the platform only; manager, workers and proxy run elsewhere. With several processes, this one supervises them
 * and serves nothing itself.
 */
import { PROCESSES_SETTINGS, SEALED_COLUMNS } from '#api/config.ts'
import { INFRASTRUCTURE_METRICS, startInfrastructure } from '#infrastructure/index.ts'
import { createRegistry } from '#core/metrics/index.ts'
import { PROCESS_METRICS, SUPERVISOR, Supervisor } from '#infrastructure/processes/index.ts'
import { runProgram } from '#core/program/index.ts'
import { apiProcessCount, launchApiProcesses } from './start/api-processes.ts'
import { API_SETTINGS } from './start/api-settings.ts'
import { prepareConsole } from './start/console.ts'

/** Connections of the supervisor, which checks the schema and writes its heartbeat to the database. */
const SUPERVISOR_CONNECTIONS = 2

await runProgram({
  name: 'api',
  summary: 'Runs the platform: users, domains, clients, channels and messages over HTTP.',
  settings: { ...API_SETTINGS, processes: PROCESSES_SETTINGS },
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  otherSettings: async () => (await import('./every-setting.ts')).EVERY_SETTING,
  async run(life, config, logger, environment) {
    const count = apiProcessCount(config, logger)
    const serve = async () => {
      if (count === 1) return await (await import('./start/serve-api.ts')).serveApi(life, { config, logger })
      const supervisor = new Supervisor(logger)
      const processes = await launchApiProcesses(supervisor, { count, config, environment, showsProgress: false })
      const infrastructure = await startInfrastructure(life, {
        config: config.infrastructure,
        logger,
        kind: 'api',
        maxConnections: SUPERVISOR_CONNECTIONS,
        sealed: SEALED_COLUMNS,
        machine: supervisor.machine,
      })
      const registry = createRegistry([...INFRASTRUCTURE_METRICS, PROCESS_METRICS.set], SUPERVISOR)
      await supervisor.whole(life, { readiness: infrastructure.readiness, registry })
      await supervisor.attach(life)
      life.delayStop(config.http.stopDelayMs)
      const { dataDir, embedded } = infrastructure
      const onBuild = () => logger.info('building the console')
      const consolePage = await prepareConsole({ dataDir, logger, signal: life.signal, onBuild })
      return await processes.serve({ embedded, elsewhere: undefined, hasReadings: true, consolePage })
    }
    const { scheme, ports, firstAdmin } = await serve()
    const { username, secretFile, createdSecret } = firstAdmin
    if (createdSecret !== undefined)
      logger.info(`the first administrator is ${username}; the password is in ${secretFile}`)
    const by = count === 1 ? '' : `, served by ${count} processes`
    logger.info(`the platform is at ${scheme}://${config.http.host}:${ports[0]}${by}`)
  },
})
