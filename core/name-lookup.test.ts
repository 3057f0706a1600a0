import { createServer, connect } from 'node:net'
import type { AddressInfo } from 'node:net'
import { once } from 'node:events'
import type { LookupAddress } from 'node:dns'
import { expect, test } from 'vitest'
import { createNameLookup } from './name-lookup.ts'

const ADDRESS: LookupAddress = { address: '127.0.0.1', family: 4 }
const MAX_WAIT_MS = 5

const failure = (code: string) => Object.assign(new Error(code), { code })

/** A name server that answers when a test says so. */
function startNameServer() {
  const asked: { answer: (addresses: LookupAddress[]) => void; fail: (code: string) => void }[] = []
  const lookup = createNameLookup(
    () =>
      new Promise((resolve, reject) => {
        asked.push({ answer: resolve, fail: (code) => reject(failure(code)) })
      }),
    MAX_WAIT_MS,
  )
  const find = (name = 'postgres') =>
    new Promise<unknown>((resolve, reject) => {
      lookup(name, { all: true }, (error, addresses) => (error === null ? resolve(addresses) : reject(error)))
    })
  return { asked, find, lookup }
}

test('a name that was found before is not waited for while the name server is silent', async () => {
  const { asked, find } = startNameServer()
  const first = find()
  asked[0]?.answer([ADDRESS])
  expect(await first).toEqual([ADDRESS])
  expect(await find()).toEqual([ADDRESS])
  // The second question is open: another one would block another thread.
  expect(await find()).toEqual([ADDRESS])
  expect(asked.length).toBe(2)
  const moved = { ...ADDRESS, address: '127.0.0.2' }
  asked[1]?.answer([moved])
  expect(await find()).toEqual([moved])
})

test('an answer counts: another address, and that the name does not exist', async () => {
  const { asked, find } = startNameServer()
  const first = find()
  asked[0]?.answer([ADDRESS])
  await first
  const gone = find()
  asked[1]?.fail('ENOTFOUND')
  await expect(gone).rejects.toThrow('ENOTFOUND')
  const again = find()
  asked[2]?.fail('EAI_AGAIN')
  await expect(again).rejects.toThrow('EAI_AGAIN')
})

test('a name server that cannot answer now does not take away what was found', async () => {
  const { asked, find } = startNameServer()
  const first = find()
  asked[0]?.answer([ADDRESS])
  await first
  const again = find()
  asked[1]?.fail('EAI_AGAIN')
  expect(await again).toEqual([ADDRESS])
})

test('names do not wait for each other, and callers of one name share one question', async () => {
  const { asked, find } = startNameServer()
  const both = Promise.all([find(), find(), find('redis')])
  expect(asked.length).toBe(2)
  for (const { answer } of asked) answer([ADDRESS])
  expect(await both).toEqual([[ADDRESS], [ADDRESS], [ADDRESS]])
})

test.each([true, false])('a connection uses it (autoSelectFamily %s)', async (autoSelectFamily) => {
  const server = createServer((socket) => socket.end()).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { asked, lookup } = startNameServer()
  const socket = connect({ port: (server.address() as AddressInfo).port, host: 'postgres', lookup, autoSelectFamily })
  asked[0]?.answer([ADDRESS])
  await once(socket, 'connect')
  expect(socket.remoteAddress).toBe('127.0.0.1')
  socket.destroy()
  server.close()
})
