export { apiKeyRoutes } from './routes.ts'
export { purgeApiKeys } from './repository.ts'
export { createApiKeysService } from './service.ts'
export type { ApiKeysService } from './service.ts'
