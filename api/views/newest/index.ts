export { newestRoutes } from './routes.ts'
export { createNewestService } from './service.ts'
