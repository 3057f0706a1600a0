import { once } from 'node:events'
import { createServer } from 'node:http'
import type { IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import type { AddressInfo } from 'node:net'
import type { FastifyRequest } from 'fastify'
import { expect, test } from 'vitest'
import { endBody, readWholeBody } from './whole-body.ts'

const PIECES = ['a'.repeat(10_000), 'b'.repeat(10), 'c']
const BODY = PIECES.join('')
const MAX_BYTES = 1024 * 1024

/** A request whose body arrived in pieces, as beside a slow authentication, before anyone reads it. */
async function receive(use: (payload: IncomingMessage) => Promise<unknown>): Promise<unknown> {
  const server = createServer({ keepAlive: true })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const socket = connect(port, '127.0.0.1')
  try {
    const requested = once(server, 'request') as Promise<[IncomingMessage]>
    socket.write(`POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${BODY.length}\r\n\r\n`)
    const [payload] = await requested
    for (const piece of PIECES) {
      const before = payload.readableLength
      socket.write(piece)
      while (payload.readableLength < before + piece.length) await new Promise((resolve) => setImmediate(resolve))
    }
    return await use(payload)
  } finally {
    socket.destroy()
    server.close()
  }
}

test('a body that arrived in several pieces is read as a whole', async () => {
  const read = await receive((payload) => {
    const request = { headers: payload.headers, facts: { bodyLimit: MAX_BYTES } } as unknown as FastifyRequest
    return new Promise((resolve, reject) =>
      readWholeBody(request, payload, (error, body) => (error === null ? resolve(String(body)) : reject(error))),
    )
  })
  expect(read).toBe(BODY)
})

test('the stream of a body that nobody reads ends, whatever pieces it arrived in', async () => {
  const hasEnded = await receive(async (payload) => {
    endBody(payload)
    await new Promise((resolve) => setImmediate(resolve))
    return payload.readableEnded
  })
  expect(hasEnded).toBe(true)
})
