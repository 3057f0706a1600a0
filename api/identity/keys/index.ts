export { apiKeyRoutes } from './routes.ts'
export { deleteApiKeysOf, purgeApiKeys } from './repository.ts'
export { ApiKeysService } from './service.ts'
