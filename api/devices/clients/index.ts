export { clientRoutes } from './routes.ts'
export { createClientsService } from './service.ts'
export type { ClientsService } from './service.ts'
