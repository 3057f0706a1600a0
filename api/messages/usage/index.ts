export { DomainUsage, createUsageService } from './service.ts'
export type { UsageService } from './service.ts'
