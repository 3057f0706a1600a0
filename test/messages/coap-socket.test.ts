/** The UDP socket of CoAP: datagrams are taken in turns of the event loop. */
import { createSocket } from 'node:dgram'
import { afterEach, expect, test } from 'vitest'
import { UdpSocket } from '#api/adapters/coap/udp-socket.ts'
import { monotonicMs } from '#core/time.ts'
import { silentLogger } from '../harness/database.ts'
import { until } from '../harness/until.ts'

const DATAGRAMS = 24
const BUSY_MS = 8

const disposals: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const dispose of disposals.splice(0)) await dispose()
})

test('datagrams that arrive together are taken in order, in turns of the event loop', async () => {
  const socket = new UdpSocket('127.0.0.1', silentLogger)
  disposals.push(() => socket.close())
  const taken: number[] = []
  let [turns, isCounting] = [0, true]
  const count = () => {
    turns++
    if (isCounting) setImmediate(count)
  }
  await socket.open(0, (datagram) => {
    taken.push(datagram.readUInt8(0))
    const endMs = monotonicMs() + BUSY_MS
    while (monotonicMs() < endMs);
  })
  const peer = createSocket('udp4')
  disposals.push(() => void peer.close())
  const numbers = Array.from({ length: DATAGRAMS }, (_, index) => index)
  for (const number of numbers) peer.send(Buffer.from([number]), socket.port, '127.0.0.1')
  await until(() => taken.length > 0, 'the first is taken')
  setImmediate(count)
  await until(() => taken.length === DATAGRAMS, 'all are taken')
  isCounting = false
  expect(taken).toEqual(numbers)
  // A turn has at most two of them: it ends after 10 ms.
  expect(turns).toBeGreaterThan(DATAGRAMS / 4)
})
