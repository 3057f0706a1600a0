export { clientRoutes } from './routes.ts'
export { MAX_BULK_BODY_BYTES, MAX_BULK_ITEMS } from './schema.ts'
export { createClientsService } from './service.ts'
export type { ClientsService } from './service.ts'
