import { createServer, get } from 'node:http'
import type { IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { arePublic, isPublicAddress, checkedLookup } from './public-address.ts'

/** A name server that gives another answer each time, as in DNS rebinding. */
function answering(...answers: string[][]) {
  const asked: string[] = []
  return {
    asked,
    resolve: (
      hostname: string,
      _options: unknown,
      callback: (error: Error | null, addresses: { address: string; family: number }[]) => void,
    ) => {
      asked.push(hostname)
      const addresses = answers[Math.min(asked.length, answers.length) - 1] ?? []
      queueMicrotask(() =>
        callback(
          null,
          addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
        ),
      )
    },
  }
}

const onlyPublic = (hostname: string, addresses: readonly { address: string; family: number }[]) =>
  arePublic(addresses) ? undefined : new Error(`${hostname} is inside`)

test('a connection uses the checked address, independent of later answers of the name server', async () => {
  const server = createServer((_request, response) => response.end('judged'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    // Nothing listens on the second address: a second lookup would fail.
    const { asked, resolve } = answering(['127.0.0.1'], ['127.0.0.2'])
    const seen: string[] = []
    const lookup = checkedLookup(
      (_hostname, addresses) => void seen.push(...addresses.map(({ address }) => address)),
      resolve,
    )
    const { port } = server.address() as AddressInfo
    const answer = await new Promise<IncomingMessage>((done, fail) => {
      get({ hostname: 'rebind.example', port, lookup }, done).on('error', fail)
    })
    answer.resume()
    expect([asked, seen]).toEqual([['rebind.example'], ['127.0.0.1']])
  } finally {
    server.closeAllConnections()
    server.close()
  }
})

test('each connection is checked with its own answer', async () => {
  const { resolve } = answering(['1.1.1.1'], ['169.254.169.254'])
  const lookup = checkedLookup(onlyPublic, resolve)
  const ask = () =>
    new Promise((done, fail) => {
      lookup('rebind.example', { all: true }, (error, addresses) => (error === null ? done(addresses) : fail(error)))
    })
  expect(await ask()).toEqual([{ address: '1.1.1.1', family: 4 }])
  await expect(ask()).rejects.toThrow('rebind.example is inside')
})

test.for([
  [['1.1.1.1', '10.0.0.1']],
  [['2606:4700::1', '::1']],
  [['2606:4700::1', 'fe80::1']],
  [['::ffff:127.0.0.1']],
  [['64:ff9b::7f00:1']],
] as const)('one private address among the answers rejects all of them: %s', async ([addresses]) => {
  const lookup = checkedLookup(onlyPublic, answering([...addresses]).resolve)
  for (const all of [true, false]) {
    const error = await new Promise((done) => lookup('mixed.example', { all }, (refusal) => done(refusal)))
    expect(error).toMatchObject({ message: 'mixed.example is inside' })
  }
})

test('a name without an address is an error', async () => {
  const lookup = checkedLookup(() => undefined, answering([]).resolve)
  const error = await new Promise((done) => lookup('empty.example', {}, (refusal) => done(refusal)))
  expect(error).toMatchObject({ message: 'empty.example has no address' })
})

test('an invalid address is not public', () => {
  for (const text of ['', 'localhost', '1.2.3', '0x7f000001', '127.1']) expect(isPublicAddress(text)).toBe(false)
})
