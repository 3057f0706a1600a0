/**
 * The module proxy as a process of its own: brings WebAssembly modules from OCI registries to workers.
 * Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage.
 */
import { choice, processEnvironment, readConfig, unknownVariables } from '#core/config/index.ts'
import { UsageError, runProgram } from '#core/lifecycle.ts'
import { LOG_LEVELS, createLogger } from '#core/logging/index.ts'
import { PROXY_SETTINGS, startProxy } from '#proxy/index.ts'

const SETTINGS = {
  ...PROXY_SETTINGS,
  logLevel: choice('SKEIN_LOG_LEVEL', LOG_LEVELS, 'info', 'Least important log line that is written'),
}

const USAGE = `Usage: npm run proxy

Brings WebAssembly modules from OCI registries to workers. It takes no arguments; settings are environment variables:

${Object.values(SETTINGS)
  .map(({ name, description, defaultText }) => `  ${name.padEnd(26)} ${description} (default: ${defaultText})`)
  .join('\n')}
`

const environment = processEnvironment()
const [argument] = process.argv.slice(2)

if (argument === '--help' || argument === '-h') {
  process.stdout.write(USAGE)
} else {
  await runProgram(createLogger({ name: 'proxy', level: logLevel() }), async (life) => {
    if (argument !== undefined) throw new UsageError(`unknown argument "${argument}"; the proxy takes none, see --help`)
    const config = readConfig(SETTINGS, environment)
    const logger = createLogger({ name: 'proxy', level: config.logLevel })
    // Other programs read the same environment, so of its variables only the proxy's own can be misspelt here.
    for (const warning of unknownVariables([SETTINGS], environment, ['PROXY_', 'SKEIN_PROXY_'])) logger.warn(warning)
    await life.start('module proxy', async () => {
      const proxy = await startProxy({ config, logger })
      return { value: proxy, stop: () => proxy.stop() }
    })
  })
}

/** The level of the lines before the settings were read; a wrong one is reported with the other settings. */
function logLevel() {
  return LOG_LEVELS.find((level) => level === environment['SKEIN_LOG_LEVEL']) ?? 'info'
}
