// `tasks invoke` survives the end of a manager behind a load balancer: the repeated call has the same Idempotency-Key.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { createHome } from './skein.ts'

/** Answers the calls in order: 'lost' closes the connection, a number is a status, text is the result. */
async function balancer(answers: (number | string)[]) {
  const keys: unknown[] = []
  const server = createServer((request, response) => {
    keys.push(request.headers['idempotency-key'])
    request.resume().on('end', () => {
      const answer = answers.shift() ?? 500
      if (answer === 'lost') request.socket.destroy()
      else if (typeof answer === 'number') response.writeHead(answer).end('<html>')
      else response.writeHead(200, { 'content-type': 'application/json' }).end(answer)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { keys, url, [Symbol.asyncDispose]: async () => void (await new Promise((done) => server.close(done))) }
}

test.each([[['lost', 503, '{"results":[3]}']], [[502, '{"results":[3]}']]])(
  'after %j the call is repeated with its key',
  async (answers) => {
    const calls = answers.length
    await using server = await balancer([...answers])
    using home = createHome({ SKEIN_URL: server.url, SKEIN_MANAGER_URL: server.url })
    const ended = await home.run(['tasks', 'invoke', 'a-task'])
    expect(ended).toMatchObject({ code: 0 })
    expect(JSON.parse(ended.stdout)).toEqual({ results: [3] })
    expect(server.keys).toHaveLength(calls)
    expect(new Set(server.keys).size).toBe(1)
    expect(server.keys[0]).toMatch(/^[0-9a-f-]{36}$/)
  },
  60_000,
)

test('a response of the manager is not repeated', async () => {
  await using server = await balancer([503])
  using home = createHome({ SKEIN_URL: server.url, SKEIN_MANAGER_URL: server.url })
  expect(await home.run(['tasks', 'invoke', 'a-task'])).toMatchObject({ code: 1 })
  expect(server.keys).toHaveLength(1)
}, 60_000)
