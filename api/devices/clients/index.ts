export { clientRoutes } from './routes.ts'
export { ClientsService } from './service.ts'
