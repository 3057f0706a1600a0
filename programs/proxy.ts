/** `npm run proxy`: brings WebAssembly modules from OCI registries to workers. */
import { LOG_LEVEL_SETTING } from '#core/logging/index.ts'
import { runProgram } from '#core/program/index.ts'
import { PROXY_SETTINGS, startProxy } from '#proxy/index.ts'

await runProgram({
  name: 'proxy',
  summary: 'Brings WebAssembly modules from OCI registries to workers.',
  settings: { proxy: PROXY_SETTINGS, log: LOG_LEVEL_SETTING },
  // Other programs read the same environment, so only the proxy's own variables can be misspelt here.
  ownPrefixes: ['PROXY_', 'SKEIN_PROXY_'],
  async run(life, config, logger) {
    await life.start('module proxy', async () => {
      const proxy = await startProxy({ config: config.proxy, logger })
      return { value: proxy, stop: () => proxy.stop() }
    })
  },
})
