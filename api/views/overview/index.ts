export { overviewRoutes } from './routes.ts'
export { startSampling } from './sampling.ts'
export { OverviewService } from './service.ts'
