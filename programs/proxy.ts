/** `npm run proxy`: delivers WebAssembly modules from OCI registries to workers. */
import { LOG_LEVEL_SETTING } from '#core/logging/index.ts'
import { runProgram } from '#core/program/index.ts'
import { startReadiness } from '#core/readiness/index.ts'
import { PROXY_SETTINGS, startProxy } from '#proxy/index.ts'

await runProgram({
  name: 'proxy',
  summary: 'Delivers WebAssembly modules from OCI registries to workers.',
  settings: { proxy: PROXY_SETTINGS, log: LOG_LEVEL_SETTING },
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  otherSettings: async () => (await import('./every-setting.ts')).EVERY_SETTING,
  async run(life, config, logger) {
    const readiness = await startReadiness(life, logger)
    await life.start('module proxy', async () => {
      const proxy = await startProxy({ config: config.proxy, logger, readiness })
      return { value: proxy, stop: () => proxy.stop() }
    })
  },
})
