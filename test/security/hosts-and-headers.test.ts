/** What requests must say about the host that they are for, and what answers say to browsers. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openRaw, parseAnswer, startEdge } from '../core/edge.ts'
import type { TestEdge } from '../core/edge.ts'

let edge: TestEdge

beforeAll(async () => {
  edge = await startEdge()
})

afterAll(async () => {
  await edge[Symbol.asyncDispose]()
})

const ask = async (text: string) => {
  const { socket, closed } = openRaw(edge.port)
  socket.write(text)
  return parseAnswer(await closed)
}

describe('the host of a request', () => {
  const BODY = '{"name":"a"}'
  const LENGTH = `Content-Type: application/json\r\nContent-Length: ${BODY.length}\r\nConnection: close`

  test('is unique: two of them are 400, also if they are equal', async () => {
    for (const hosts of ['Host: a\r\nHost: b', 'Host: a\r\nhost: a', 'Host: a\r\nX-Other: b\r\nHOST: c']) {
      for (const text of [
        `POST /pumps HTTP/1.1\r\n${hosts}\r\n${LENGTH}\r\n\r\n${BODY}`,
        `GET /health HTTP/1.1\r\n${hosts}\r\nConnection: close\r\n\r\n`,
        `GET /health HTTP/1.0\r\n${hosts}\r\n\r\n`,
      ]) {
        const { status, body } = await ask(text)
        expect([status, body['message']], text).toEqual([400, 'the request must have one Host header, not 2'])
      }
    }
  })

  test('is unique in an upgrade too', async () => {
    edge.app.server.on('upgrade', (_request, socket) => socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n'))
    const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket'
    expect((await ask(`GET /ws HTTP/1.1\r\nHost: a\r\nHost: b\r\n${upgrade}\r\n\r\n`)).status).toBe(400)
    const { socket, closed } = openRaw(edge.port)
    socket.write(`GET /ws HTTP/1.1\r\nHost: a\r\n${upgrade}\r\n\r\n`)
    expect(await closed).toMatch(/^HTTP\/1.1 101/)
  })

  test('is accepted once', async () => {
    const { status } = await ask(`POST /pumps HTTP/1.1\r\nHost: a\r\n${LENGTH}\r\n\r\n${BODY}`)
    expect(status).toBe(201)
  })
})

describe('headers for browsers', () => {
  const answers: [string, string, RequestInit][] = [
    ['a result', '/health', {}],
    ['a refusal', '/private', {}],
    ['a path that nothing has', '/nothing', {}],
    ['a method that the path does not take', '/health', { method: 'DELETE' }],
    ['an address that the router refuses', '/pumps/%ff', {}],
    ['a preflight', '/pumps', { method: 'OPTIONS', headers: { 'Access-Control-Request-Method': 'POST' } }],
    ['a fault', '/broken', {}],
    ['the document', '/openapi.json', {}],
    ['metrics', '/metrics', {}],
    ['the page', '/docs', {}],
    ['a file of the page', '/docs/static/swagger-ui-bundle.js', {}],
  ]

  test.each(answers)('%s has the content type of its content', async (_what, path, init) => {
    const response = await fetch(`${edge.url}${path}`, init)
    await response.arrayBuffer()
    expect(response.headers.get('x-content-type-options')).toBe('nosniff')
  })

  test.each([
    ['no request at all', 'nonsense\r\n\r\n'],
    ['a request without a host', 'GET /health HTTP/1.1\r\n\r\n'],
  ])('the response to %s has the content type of its content', async (_what, text) => {
    expect((await ask(text)).headers).toContain('x-content-type-options: nosniff')
  })

  test('the page loads only its own files, allows no frame and sends no referrer', async () => {
    for (const path of ['/docs', '/docs/', '/docs/static/index.html', '/docs/static/swagger-initializer.js']) {
      const response = await fetch(`${edge.url}${path}`)
      await response.arrayBuffer()
      expect(response.status, path).toBe(200)
      const policy = new Map(
        (response.headers.get('content-security-policy') ?? '').split('; ').map((directive) => {
          const [name = '', ...sources] = directive.split(' ')
          return [name, sources.join(' ')]
        }),
      )
      expect(policy.get('default-src'), path).toBe("'self'")
      expect(policy.has('script-src'), path).toBe(false)
      expect(policy.get('frame-ancestors'), path).toBe("'none'")
      expect(policy.get('base-uri'), path).toBe("'none'")
      expect(policy.get('object-src'), path).toBe("'none'")
      expect(response.headers.get('x-frame-options'), path).toBe('DENY')
      expect(response.headers.get('referrer-policy'), path).toBe('no-referrer')
    }
  })

  test('the page requires no inline script', async () => {
    const html = await (await fetch(`${edge.url}/docs`)).text()
    const scripts = [...html.matchAll(/<script([^>]*)>([^<]*)</g)]
    expect(scripts.length).toBeGreaterThan(0)
    for (const [, attributes = '', text = ''] of scripts) {
      expect(attributes).toContain('src=')
      expect(text.trim()).toBe('')
    }
  })
})
