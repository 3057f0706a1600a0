export { overviewRoutes } from './routes.ts'
export { createOverviewService } from './service.ts'
