/** Settings of tracing, under the names of OpenTelemetry's specification, for every program. */
import { choice, httpUrl, ratio, secret } from '../config/index.ts'
import type { ConfigOf } from '../config/index.ts'

export const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const

export const TRACING_SETTINGS = {
  endpoint: httpUrl(
    'OTEL_EXPORTER_OTLP_ENDPOINT',
    '',
    'OpenTelemetry collector that traces are sent to (OTLP over HTTP, path /v1/traces is added); unset: tracing is off and nothing of it is loaded',
  ),
  headers: secret('OTEL_EXPORTER_OTLP_HEADERS', 'Headers for the collector, as name=value pairs separated by commas'),
  sampler: choice('OTEL_TRACES_SAMPLER', SAMPLERS, 'parentbased_always_on', 'Which traces are recorded'),
  samplerRatio: ratio('OTEL_TRACES_SAMPLER_ARG', 1, 'Share of traces that the ratio samplers record, from 0 to 1'),
} as const

export type TracingConfig = ConfigOf<typeof TRACING_SETTINGS>
