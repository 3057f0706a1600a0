/**
 * Confirmable posts over CoAP, one record each, acknowledged after the commit. Each of the peers has a socket and waits
 * for its answer before it sends again (RFC 7252 section 4.7).
 */
import { createSocket } from 'node:dgram'
import type { Socket } from 'node:dgram'
import { newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable, repeat } from './statistics.ts'

const PEERS = 256
const DEVICES = 100
const DURATION_MS = 5000
const REPEATS = 3
/** A request without an answer for this long is sent again. */
const RESEND_MS = 2000
const TARGET_POSTS_PER_SECOND = 15_000
/** 2.04 as an acknowledgement: type and token length, code. */
const ACKNOWLEDGED = [0x62, 0x44] as const

type Result = { answered: number; refused: number; resent: number; perSecond: number; latenciesMs: number[] }

function option(delta: number, value: Buffer): Buffer {
  const extended = [delta, value.length].map((number) => (number < 13 ? number : 13))
  const rest = [delta, value.length].filter((number) => number >= 13).map((number) => number - 13)
  return Buffer.concat([Buffer.from([((extended[0] as number) << 4) | (extended[1] as number), ...rest]), value])
}

/** A confirmable POST with a token of two bytes; its message identifier is at 2. */
function post(path: readonly string[], secret: string, payload: string): Buffer {
  return Buffer.concat([
    Buffer.from([0x42, 2, 0, 0, 1, 2]),
    ...path.map((element, index) => option(index === 0 ? 11 : 0, Buffer.from(element))),
    // Content-Format 110, then Uri-Query.
    option(1, Buffer.from([110])),
    option(3, Buffer.from(`auth=${secret}`)),
    Buffer.from([0xff]),
    Buffer.from(payload),
  ])
}

async function load(port: number, requests: readonly Buffer[]): Promise<Result> {
  const result = { answered: 0, refused: 0, resent: 0, latenciesMs: [] as number[] }
  const began = performance.now()
  const end = began + DURATION_MS

  const run = (socket: Socket, request: Buffer) =>
    new Promise<void>((resolve) => {
      let messageId = 0
      let sentAt = 0
      const send = () => socket.send(request)
      const next = () => {
        if (performance.now() >= end) {
          clearInterval(resending)
          socket.close(() => resolve())
          return
        }
        messageId = (messageId + 1) % 0x1_0000
        request.writeUInt16BE(messageId, 2)
        sentAt = performance.now()
        send()
      }
      const resending = setInterval(() => {
        if (performance.now() - sentAt < RESEND_MS) return
        result.resent++
        send()
      }, RESEND_MS / 4)
      socket.on('message', (answer) => {
        if (answer.readUInt16BE(2) !== messageId) return
        if (answer[0] === ACKNOWLEDGED[0] && answer[1] === ACKNOWLEDGED[1]) {
          result.answered++
          result.latenciesMs.push(performance.now() - sentAt)
        } else result.refused++
        next()
      })
      next()
    })

  await Promise.all(
    Array.from({ length: PEERS }, async (_, index) => {
      const socket = createSocket('udp4')
      await new Promise<void>((resolve) => socket.connect(port, '127.0.0.1', resolve))
      await run(socket, Buffer.from(requests[index % requests.length] as Buffer))
    }),
  )
  return { ...result, perSecond: (result.answered * 1000) / (performance.now() - began) }
}

async function freePort(): Promise<number> {
  const socket = createSocket('udp4')
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve))
  const { port } = socket.address()
  await new Promise<void>((resolve) => socket.close(() => resolve()))
  return port
}

export async function benchCoap(): Promise<void> {
  const dataDir = newDataDir()
  try {
    const port = await freePort()
    await using platform = await startPlatform(dataDir, { SKEIN_COAP_PORT: String(port) })
    const { domainId, channelId, devices } = await prepareDevices(platform, DEVICES)
    const requests = devices.map(({ secret }, index) =>
      post(['m', domainId, 'c', channelId], secret, `[{"n":"device-${index}","u":"V","v":${index}}]`),
    )
    const results = await repeat(1, REPEATS, () => load(port, requests))
    const posts = median(results.map((result) => result.perSecond))
    const latencies = results.flatMap((result) => result.latenciesMs)
    const sum = (of: (result: Result) => number) => String(results.reduce((total, result) => total + of(result), 0))
    printTable(`Confirmable posts over CoAP, one record each, ${PEERS} peers, loader on the same cores`, [
      {
        name: 'stored, answered after the commit',
        figure: perSecond(posts, 'posts'),
        target: perSecond(TARGET_POSTS_PER_SECOND, 'posts'),
        isReached: posts >= TARGET_POSTS_PER_SECOND,
      },
      {
        name: '  latency',
        figure: `p50 ${milliseconds(median(latencies))}, p99 ${milliseconds(percentile(latencies, 0.99))}`,
      },
      { name: '  refused', figure: sum((result) => result.refused) },
      { name: '  sent again', figure: sum((result) => result.resent) },
    ])
  } finally {
    removeDataDir(dataDir)
  }
}
