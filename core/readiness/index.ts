export { startProbe } from './probe.ts'
export type { Probe, ProbeOptions } from './probe.ts'
export { Readiness, startReadiness } from './readiness.ts'
export type { Check, CheckState, ReadinessReport, ReadinessStatus } from './readiness.ts'
