export { OfflineTasks } from './offline-tasks.ts'
export { OfflineStore } from './store.ts'
export type { OfflineTasksDeps, TickRun, TickRunner } from './offline-tasks.ts'
