export { requireRoute } from './route-name.ts'
export { domainRoutes } from './routes.ts'
export { createDomainsService } from './service.ts'
export type { DomainsService } from './service.ts'
