/** An installation without a collector pays nothing for tracing. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

/** Prints the name of each package of OpenTelemetry that is resolved. */
const WATCH = `
import { registerHooks } from 'node:module'
registerHooks({ resolve(name, context, next) { if (name.startsWith('@opentelemetry')) console.log(name); return next(name, context) } })
const tracing = await import('./core/tracing/index.ts')
tracing.startSpan('request').end()
if (process.argv[1] === 'on') await (await tracing.startTracing(
  { endpoint: 'http://127.0.0.1:9', headers: undefined, sampler: 'always_off', samplerRatio: 1 },
  { service: 'test', version: '0', instance: 'test' })).stop()`

const loaded = async (mode: 'on' | 'off') =>
  (await promisify(execFile)(process.execPath, ['--input-type=module', '-e', WATCH, mode], { encoding: 'utf8' })).stdout

test('packages of OpenTelemetry are loaded when tracing starts and not before', async () => {
  expect(await loaded('off')).toBe('')
  expect(await loaded('on')).toContain('@opentelemetry/sdk-trace')
})
