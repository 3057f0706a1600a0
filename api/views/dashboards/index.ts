export { dashboardRoutes } from './routes.ts'
export { DashboardsService } from './service.ts'
