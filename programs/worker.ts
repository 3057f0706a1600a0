/** `npm run worker`: joins a manager and runs WebAssembly modules for it. */
import { readBuildInfo } from '#core/build-info.ts'
import { runProgram } from '#core/program/index.ts'
import { startReadiness } from '#core/readiness/index.ts'
import { PUBLISHED_SETTINGS } from '#api/config.ts'
import { LOG_LEVEL_SETTING } from '#core/logging/index.ts'
import { isLoopbackHost, isPublishedElsewhere } from '#core/loopback.ts'
import { WORKER_SETTINGS, readStatus, renderStatus, startWorker, workerFolder } from '#worker/index.ts'

await runProgram({
  name: 'worker',
  summary: 'Joins a manager and runs WebAssembly modules for it.',
  settings: {
    worker: WORKER_SETTINGS,
    // Settings of a platform on the same machine: whether other machines can reach it.
    platform: PUBLISHED_SETTINGS,
    log: LOG_LEVEL_SETTING,
  },
  flags: {
    manager: { setting: 'SKEIN_WORKER_MANAGER' },
    'token-file': { setting: 'SKEIN_WORKER_TOKEN_FILE' },
    name: { setting: 'SKEIN_WORKER_NAME' },
    'allow-gc': { setting: 'SKEIN_WORKER_ALLOW_GC', isSwitch: true },
  },
  commands: {
    status: {
      summary: 'show the state of the worker of this data folder; works without a manager',
      run: async (config) => renderStatus(await readStatus(workerFolder(config.worker))),
    },
  },
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  otherSettings: async () => (await import('./every-setting.ts')).EVERY_SETTING,
  mayHaveParent: true,
  async run(life, config, logger) {
    const readiness = await startReadiness(life, logger)
    await life.start('worker', async () => {
      const worker = await startWorker({
        config: config.worker,
        logger,
        readiness,
        version: readBuildInfo().version,
        signal: life.signal,
        isBesidePlatform: process.connected,
        isExposed: !isLoopbackHost(config.worker.host) || isPublishedElsewhere(config.platform),
      })
      // `npm start` displays it.
      process.send?.({ isolation: worker.isolation })
      return { value: worker, stop: () => worker.stop() }
    })
  },
})
