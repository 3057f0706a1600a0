export { dashboardRoutes } from './routes.ts'
export { createDashboardsService } from './service.ts'
