export { createGrpcModuleSource } from './grpc-source.ts'
export { ModuleCache } from './module-cache.ts'
export type { HeldModule, ModuleCacheOptions, ModuleSource, WantedModule } from './module-cache.ts'
