export { apiKeyRoutes } from './routes.ts'
export { deleteApiKeysOf, purgeApiKeys } from './repository.ts'
export { createApiKeysService } from './service.ts'
export type { ApiKeysService } from './service.ts'
