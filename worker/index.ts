/** The face of the worker to `programs/`: its settings and its start. */
export { WORKER_SETTINGS, workerFolder } from './config.ts'
export type { WorkerConfig } from './config.ts'
export { startWorker } from './worker.ts'
export type { WorkerTiming } from './membership.ts'
export type { StartWorkerOptions, Worker } from './worker.ts'
export { readStatus, renderStatus } from './status/index.ts'
