/**
 * A load generator over raw sockets, `connections` at once. Each sends a prepared request and, after the answer, the next
 * one. It does as little as possible, because it shares the cores with the server.
 */
import { connect } from 'node:net'
import type { Socket } from 'node:net'

export type LoadOptions = {
  port: number
  /** Whole requests, sent in turn; or a function of the turn, which returns undefined to stop. */
  requests: readonly Buffer[] | ((turn: number) => Buffer | undefined)
  connections: number
  durationMs: number
  /** Status that counts as success. */
  status: number
  /** The limit of requests per second and connection; undefined: unlimited. */
  perSecond?: number
}

export type LoadResult = { answered: number; refused: number; perSecond: number; latenciesMs: number[] }

/** A request without chunking, ready for the wire. */
export function prepareRequest(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body = '',
): Buffer {
  const lines = Object.entries({ Host: '127.0.0.1', ...headers, 'Content-Length': String(Buffer.byteLength(body)) })
  return Buffer.from(
    `${method} ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}`).join('\r\n')}\r\n\r\n${body}`,
  )
}

const HEADER_END = '\r\n\r\n'

/** The length of the first whole response in the buffer and its status; undefined: more must come. */
function firstResponse(buffer: Buffer): { length: number; status: number } | undefined {
  const end = buffer.indexOf(HEADER_END)
  if (end === -1) return undefined
  const head = buffer.toString('latin1', 0, end)
  const bodyLength = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0)
  const length = end + HEADER_END.length + bodyLength
  return buffer.length < length ? undefined : { length, status: Number(head.slice(9, 12)) }
}

export async function load({
  port,
  requests,
  connections,
  durationMs,
  status,
  perSecond = Infinity,
}: LoadOptions): Promise<LoadResult> {
  const latenciesMs: number[] = []
  let answered = 0
  let refused = 0
  let turn = 0
  const nextOf =
    typeof requests === 'function' ? requests : (index: number) => requests[index % requests.length] as Buffer
  const begin = performance.now()
  const end = begin + durationMs
  const periodMs = 1000 / perSecond

  const run = (socket: Socket, place: number) =>
    new Promise<void>((resolve, reject) => {
      let pending: Buffer = Buffer.alloc(0)
      let sentAt = 0
      // At a given rate each connection has due times of its own, as independent devices do; in step they would be one
      // burst.
      let dueAt = begin + (place / connections) * periodMs
      const send = () => {
        sentAt = performance.now()
        const request = sentAt >= end ? undefined : nextOf(turn++)
        if (request === undefined) {
          socket.end()
          resolve()
          return
        }
        socket.write(request)
      }
      socket.on('data', (chunk: Buffer) => {
        pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
        const response = firstResponse(pending)
        if (response === undefined) return
        pending = pending.subarray(response.length)
        if (response.status === status) {
          answered += 1
          latenciesMs.push(performance.now() - sentAt)
        } else {
          refused += 1
        }
        const now = performance.now()
        dueAt += periodMs
        // Connections whose answers were late together return to their own due times; otherwise they would stay in step.
        const lateMs = now - dueAt
        if (periodMs > 0 && lateMs > periodMs) dueAt += lateMs - (lateMs % periodMs)
        if (dueAt > now) setTimeout(send, dueAt - now)
        else send()
      })
      socket.on('error', reject)
      socket.on('close', () => resolve())
      if (perSecond === Infinity) send()
      else setTimeout(send, Math.max(0, dueAt - performance.now()))
    })

  const sockets = await Promise.all(
    Array.from(
      { length: connections },
      () =>
        new Promise<Socket>((resolve, reject) => {
          const socket = connect({ port, host: '127.0.0.1', noDelay: true }, () => resolve(socket))
          socket.once('error', reject)
        }),
    ),
  )
  await Promise.all(sockets.map(run))
  return { answered, refused, perSecond: (answered * 1000) / (performance.now() - begin), latenciesMs }
}
