/** The exports of the worker for `programs/`: its settings and its start. */
export { WORKER_SETTINGS, workerFolder } from './identity/config.ts'
export type { WorkerConfig } from './identity/config.ts'
export { startWorker } from './worker.ts'
export type { WorkerTiming } from './membership/membership.ts'
export type { StartWorkerOptions, Worker } from './worker.ts'
export { awaitJoin, DRAIN_SIGNAL, drainWorker, goBack, install, upgrade } from './installation/index.ts'
export { readStatus, renderStatus } from './status/index.ts'
