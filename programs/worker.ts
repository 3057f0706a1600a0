/** `npm run worker`: joins a manager and runs WebAssembly modules for it. */
import { readBuildInfo } from '#core/build-info.ts'
import { runProgram } from '#core/program/index.ts'
import { startReadiness } from '#core/readiness/index.ts'
import { PUBLISHED_SETTINGS } from '#api/config.ts'
import { LOG_LEVEL_SETTING } from '#core/logging/index.ts'
import { isLoopbackHost, isPublishedElsewhere } from '#core/loopback.ts'
import {
  DRAIN_SIGNAL,
  WORKER_SETTINGS,
  awaitJoin,
  drainWorker,
  goBack,
  install,
  readStatus,
  renderStatus,
  startWorker,
  upgrade,
  workerFolder,
} from '#worker/index.ts'

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
      run: async (config, _, print) => print(renderStatus(await readStatus(workerFolder(config.worker))).trimEnd()),
    },
    drain: {
      summary: 'take no new runs, and wait until those of the worker of this data folder have ended',
      run: async (config, _, print) => await drainWorker(workerFolder(config.worker), print),
    },
    'await-join': {
      summary: 'wait up to 60 s until the worker of this data folder has joined a manager',
      run: async (config) => void (await awaitJoin(workerFolder(config.worker))),
    },
    install: {
      summary: 'as root: make the single file a service of this machine, with these flags; needs systemd',
      run: async (config, _, print) => await install(config.worker, print),
    },
    upgrade: {
      summary: 'as root: replace the installed version, and go back to it if the new one does not join within 60 s',
      operands: 'FILE [SHA256]',
      operandCounts: [1, 2],
      run: async (_, [file = '', sha256], print) => await upgrade(file, sha256, print),
    },
    back: {
      summary: 'as root: go back to the version before the last upgrade',
      run: async (_, __, print) => await goBack(print),
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
        onDrainRequest: (drain) => void process.on(DRAIN_SIGNAL, drain),
        isBesidePlatform: process.connected,
        isExposed: !isLoopbackHost(config.worker.host) || isPublishedElsewhere(config.platform),
      })
      // `npm start` displays it.
      process.send?.({ isolation: worker.isolation })
      return { value: worker, stop: () => worker.stop() }
    })
  },
})
