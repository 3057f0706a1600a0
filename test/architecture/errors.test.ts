/** The table of errors is complete, and docs/guides/errors.md contains it. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ERROR_KINDS, PROTOCOL_STATUS, ServiceError, presentError } from '#core/errors/index.ts'
import { ROOT, productSources } from './source-imports.ts'

/** As decided, written down a second time on purpose: a wire number must not change by a slip in one place. */
const DECIDED: Record<string, { http: number; grpc: number; connack?: number; mqtt5?: number; coap: string }> = {
  malformed: { http: 400, grpc: 3, mqtt5: 0x99, coap: '4.00' },
  unauthenticated: { http: 401, grpc: 16, connack: 4, mqtt5: 0x86, coap: '4.01' },
  forbidden: { http: 403, grpc: 7, connack: 5, mqtt5: 0x87, coap: '4.03' },
  not_found: { http: 404, grpc: 5, mqtt5: 0x90, coap: '4.04' },
  gone: { http: 410, grpc: 11, mqtt5: 0x90, coap: '4.04' },
  conflict: { http: 409, grpc: 6, mqtt5: 0x83, coap: '4.09' },
  invalid_state: { http: 409, grpc: 9, mqtt5: 0x83, coap: '4.09' },
  precondition_failed: { http: 412, grpc: 10, coap: '4.12' },
  unprocessable: { http: 422, grpc: 9, mqtt5: 0x83, coap: '4.22' },
  too_large: { http: 413, grpc: 8, mqtt5: 0x95, coap: '4.13' },
  quota_exceeded: { http: 422, grpc: 8, connack: 3, mqtt5: 0x97, coap: '4.29' },
  // No MQTT packet has a method, so no reason code was decided.
  method_not_allowed: { http: 405, grpc: 12, coap: '4.05' },
  unsupported_media_type: { http: 415, grpc: 3, mqtt5: 0x99, coap: '4.15' },
  rate_limited: { http: 429, grpc: 8, mqtt5: 0x96, coap: '4.29' },
  unavailable: { http: 503, grpc: 14, connack: 3, mqtt5: 0x88, coap: '5.03' },
  timeout: { http: 504, grpc: 4, mqtt5: 0x80, coap: '5.04' },
  internal: { http: 500, grpc: 13, mqtt5: 0x80, coap: '5.00' },
}

describe('errors', () => {
  it('every kind has one row, and there is no row without a kind', () => {
    expect(Object.keys(PROTOCOL_STATUS).toSorted()).toEqual([...ERROR_KINDS].toSorted())
    expect(Object.keys(DECIDED).toSorted()).toEqual([...ERROR_KINDS].toSorted())
    expect(new Set(ERROR_KINDS).size).toBe(ERROR_KINDS.length)
  })

  it.each(ERROR_KINDS)('%s has the decided number on every wire', (kind) => {
    const row = PROTOCOL_STATUS[kind]
    const decided = DECIDED[kind]
    expect({ http: row.http, grpc: row.grpc, coap: row.coap }).toEqual({
      http: decided?.http,
      grpc: decided?.grpc,
      coap: decided?.coap,
    })
    if (decided?.connack !== undefined) expect(row.mqtt3Connack).toBe(decided.connack)
    if (decided?.mqtt5 !== undefined) expect(row.mqtt5).toBe(decided.mqtt5)
    expect(row.exit).toBe(1)
  })

  it.each(ERROR_KINDS)('%s has numbers that its protocols know', (kind) => {
    const { http, grpc, mqtt3Connack, mqtt5, coap } = PROTOCOL_STATUS[kind]
    expect(http).toBeGreaterThanOrEqual(400)
    expect(http).toBeLessThan(600)
    // grpc status codes 1 to 16; 0 is OK.
    expect(grpc).toBeGreaterThanOrEqual(1)
    expect(grpc).toBeLessThanOrEqual(16)
    // MQTT 3.1.1 section 3.2.2.3: 1 to 5. MQTT 5 section 2.4: 0x80 or greater is a failure.
    if (mqtt3Connack !== undefined) expect([1, 2, 3, 4, 5]).toContain(mqtt3Connack)
    expect(mqtt5).toBeGreaterThanOrEqual(0x80)
    expect(mqtt5).toBeLessThanOrEqual(0xa2)
    expect(coap).toMatch(/^[45]\.\d\d$/)
    // Who is to blame must not depend on the protocol.
    expect(coap.startsWith('5')).toBe(http >= 500)
  })

  it.each(ERROR_KINDS)('%s leaves in the body of decision 44', (kind) => {
    const body = presentError(new ServiceError(kind, 'a sentence', { context: { secret: 'x' }, cause: new Error('y') }))
    expect(body).toEqual({ error: kind, message: kind === 'internal' ? 'internal error' : 'a sentence' })
  })

  it('docs/guides/errors.md shows every kind with its HTTP status', () => {
    const text = readFileSync(join(ROOT, 'docs/guides/errors.md'), 'utf8')
    for (const kind of ERROR_KINDS) expect(text).toContain(`| \`${kind}\` | ${PROTOCOL_STATUS[kind].http} |`)
  })

  it('no other file of the product answers with a failure number of its own', () => {
    // Fastify's reply.code takes the number from the table; a literal would bypass it.
    const literal = /\.(code|status|writeHead)\((4|5)\d\d\b/
    const guilty = productSources().filter(({ text }) => literal.test(text))
    expect(guilty.map(({ path }) => path)).toEqual([])
  })
})
