/** `npm run worker`: a node that joins a manager and runs WebAssembly for it. */
import { readBuildInfo } from '#core/build-info.ts'
import { runProgram } from '#core/program/index.ts'
import { PUBLISHED_SETTINGS } from '#api/config.ts'
import { LOG_LEVEL_SETTING } from '#core/logging/index.ts'
import { isLoopbackHost, isPublishedElsewhere } from '#core/loopback.ts'
import { WORKER_SETTINGS, readStatus, renderStatus, startWorker, workerFolder } from '#worker/index.ts'

await runProgram({
  name: 'worker',
  summary: 'Joins a manager and runs WebAssembly for it.',
  settings: {
    worker: WORKER_SETTINGS,
    // Of a platform on the same machine: whether others reach it.
    platform: PUBLISHED_SETTINGS,
    log: LOG_LEVEL_SETTING,
  },
  flags: {
    manager: { setting: 'SKEIN_WORKER_MANAGER' },
    token: { setting: 'SKEIN_WORKER_TOKEN' },
    name: { setting: 'SKEIN_WORKER_NAME' },
    'allow-gc': { setting: 'SKEIN_WORKER_ALLOW_GC', isSwitch: true },
  },
  commands: {
    status: {
      summary: 'what the worker of this data folder is doing; needs no manager',
      run: async (config) => renderStatus(await readStatus(workerFolder(config.worker))),
    },
  },
  // Other programs read the same environment, so only the worker's own variables can be misspelt here.
  ownPrefixes: ['SKEIN_WORKER_'],
  mayHaveParent: true,
  async run(life, config, logger) {
    await life.start('worker', async () => {
      const worker = await startWorker({
        config: config.worker,
        logger,
        version: readBuildInfo().version,
        signal: life.signal,
        isBesidePlatform: process.connected,
        isExposed: !isLoopbackHost(config.worker.host) || isPublishedElsewhere(config.platform),
      })
      // `npm start` shows it.
      process.send?.({ isolation: worker.isolation })
      return { value: worker, stop: () => worker.stop() }
    })
  },
})
