/** The face of the worker to `programs/`: its settings and its start. */
export { WORKER_SETTINGS } from './config.ts'
export type { WorkerConfig } from './config.ts'
export { startWorker } from './worker.ts'
export type { StartWorkerOptions, Worker, WorkerTiming } from './worker.ts'
