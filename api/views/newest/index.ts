export { newestRoutes } from './routes.ts'
export { NewestService } from './service.ts'
