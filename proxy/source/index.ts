/** Modules by reference and digest, from registries and the task manager, and on their way into registries. */
export { ModuleSource } from './module-source.ts'
export type { Asker, DescribedBlob, Resolved, SourceLimits } from './module-source.ts'
export { createPushes } from './pushes.ts'
export type { PushOrder, Pushes } from './pushes.ts'
export { uploadsOver } from './uploads.ts'
export type { Uploads } from './uploads.ts'
