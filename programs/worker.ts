/**
 * A worker as a process of its own: joins a manager and runs WebAssembly for it.
 * Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage.
 */
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { choice, processEnvironment, readConfig, unknownVariables } from '#core/config/index.ts'
import { UsageError, runProgram, sentenceOf } from '#core/lifecycle.ts'
import { LOG_LEVELS, createLogger } from '#core/logging/index.ts'
import { WORKER_SETTINGS, startWorker } from '#worker/index.ts'

const SETTINGS = {
  ...WORKER_SETTINGS,
  logLevel: choice('SKEIN_LOG_LEVEL', LOG_LEVELS, 'info', 'Least important log line that is written'),
}

const USAGE = `Usage: npm run worker -- [--manager HOST:PORT] [--token TOKEN] [--name NAME] [--allow-gc]

Joins a manager and runs WebAssembly for it. Flags go before the environment variables that are its settings:

${Object.values(SETTINGS)
  .map(({ name, description, defaultText }) => `  ${name.padEnd(26)} ${description} (default: ${defaultText})`)
  .join('\n')}
`

const environment = processEnvironment()

/** Flags as the variables that they stand for. Throws UsageError for anything else. */
function readFlags(): { help: boolean; overrides: Record<string, string> } {
  try {
    const { values } = parseArgs({
      options: {
        manager: { type: 'string' },
        token: { type: 'string' },
        name: { type: 'string' },
        'allow-gc': { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    })
    const overrides = {
      SKEIN_WORKER_MANAGER: values.manager,
      SKEIN_WORKER_TOKEN: values.token,
      SKEIN_WORKER_NAME: values.name,
      SKEIN_WORKER_ALLOW_GC: values['allow-gc'] === true ? 'true' : undefined,
    }
    const given = Object.entries(overrides).filter((entry): entry is [string, string] => entry[1] !== undefined)
    return { help: values.help === true, overrides: Object.fromEntries(given) }
  } catch (error) {
    throw new UsageError(`${sentenceOf(error)}; see --help`)
  }
}

const level = LOG_LEVELS.find((one) => one === environment['SKEIN_LOG_LEVEL']) ?? 'info'
await runProgram(createLogger({ name: 'worker', level }), async (life) => {
  const { help, overrides } = readFlags()
  if (help) {
    process.stdout.write(USAGE)
    return life.stop()
  }
  const config = readConfig(SETTINGS, { ...environment, ...overrides })
  const logger = createLogger({ name: 'worker', level: config.logLevel })
  for (const warning of unknownVariables([SETTINGS], environment, ['SKEIN_WORKER_'])) logger.warn(warning)
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  await life.start('worker', async () => {
    const worker = await startWorker({ config, logger, version, signal: life.signal })
    return { value: worker, stop: worker.stop }
  })
})
