export { GivenSecrets } from './given-secrets.ts'
export { clientRoutes } from './routes.ts'
export { ClientsService } from './service.ts'
