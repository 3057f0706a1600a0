export { ClientTelemetry, DomainUsage } from './schema.ts'
export { createUsageService } from './service.ts'
export type { UsageService } from './service.ts'
