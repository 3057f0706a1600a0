/** Modules by reference and digest: pulled from registries and the task manager, and pushed to registries. */
export { ModuleSource } from './module-source.ts'
export type { ModuleRequester, DescribedBlob, Resolved, SourceLimits } from './module-source.ts'
export { PROXY_METRICS } from './metrics.ts'
export { createPushes } from './pushes.ts'
export type { PushOrder, Pushes } from './pushes.ts'
export { uploadsOver } from './uploads.ts'
export type { Uploads } from './uploads.ts'
