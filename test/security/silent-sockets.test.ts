/** Sockets whose callers do not tell who they are close nothing for others, also behind a reverse proxy of SKEIN_TRUST_PROXY. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'

/** More than one address may have, see `unknown-callers.ts`. */
const SILENT = 260
const LIMIT_OF_ADDRESS = 250

const plant = useWorld(() => startPlant({ trustProxy: ['127.0.0.1'] }))
let listeners: Listeners

beforeAll(async () => {
  const ports = [{ port: 0, isOptional: false, setting: 'TEST' }]
  listeners = await listen(plant.api.app, { host: '127.0.0.1', ports, logger })
}, 60_000)
afterAll(async () => {
  await listeners.stop(100)
})

async function connect(address: string): Promise<WebSocket> {
  const socket = new WebSocket(`ws://127.0.0.1:${listeners.ports[0]}/${plant.domainId}/stream`, {
    headers: { 'x-forwarded-for': address },
  })
  socket.on('error', () => undefined)
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject))
  return socket
}

const openOf = (sockets: readonly WebSocket[]) => sockets.filter(({ readyState }) => readyState === WebSocket.OPEN)

test('a caller who sends a token is served behind the same address, and other addresses lose no socket', async () => {
  const elsewhere = await connect('198.51.100.2')
  const silent: WebSocket[] = []
  for (let count = 0; count < SILENT; count++) silent.push(await connect('198.51.100.1'))
  const caller = await connect('198.51.100.1')
  const frames: { type: string }[] = []
  caller.on('message', (data: Buffer) => frames.push(JSON.parse(data.toString()) as { type: string }))
  caller.send(JSON.stringify({ type: 'authenticate', token: plant.owner.accessToken }))
  await until(() => Promise.resolve(frames.find(({ type }) => type === 'authenticated')), 'the answer to the token')
  // The oldest were dropped, in their order; the caller is no longer counted.
  await until(() => Promise.resolve(openOf(silent).length === LIMIT_OF_ADDRESS - 1 || undefined), 'the dropped sockets')
  expect(openOf(silent)).toEqual(silent.slice(-(LIMIT_OF_ADDRESS - 1)))
  expect(openOf([elsewhere, caller])).toHaveLength(2)
  for (const socket of [...silent, elsewhere, caller]) socket.terminate()
})
