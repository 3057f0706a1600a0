export { ClientTelemetry, DomainUsage } from './schema.ts'
export { RATE_STEPS, WINDOW_SECONDS, findRates } from '../projections/rates.ts'
export type { RatePoint, RateWindow } from '../projections/rates.ts'
export { UsageService } from './service.ts'
