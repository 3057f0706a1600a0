/** Responds to GET or HEAD with streamed bytes: supports Range, and gives up when the client does not read. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { withDeadline } from '../time.ts'
import { parseRange } from './ranges.ts'

export type SentBytes = {
  sizeBytes: number
  /** Reads into the buffer from a position and returns the number of bytes, at least one. May wait for bytes in transit. */
  read(into: Buffer, position: number): Promise<number>
}

export type SendLimits = {
  /** The deadline in milliseconds for the client to take one piece of at most 256 KiB. */
  stallMs: number
}

/** RFC 9110 section 15.5.17; no kind of error maps to it. */
const RANGE_NOT_SATISFIABLE = 416
/** The size of a read and a write. */
const PIECE_BYTES = 256 * 1024

/**
 * Sends the requested bytes. Resolves when they are sent, or the client has disconnected. Throws the errors of `read`; then, and
 * when the client does not take a piece in time, the connection is closed, so that a part is not mistaken for the whole.
 */
export async function sendBytes(
  request: IncomingMessage,
  response: ServerResponse,
  bytes: SentBytes,
  headers: Readonly<Record<string, string>>,
  { stallMs }: SendLimits,
): Promise<void> {
  const { sizeBytes } = bytes
  const range = parseRange(request.headers.range, sizeBytes)
  if (range === 'beyond') {
    response.writeHead(RANGE_NOT_SATISFIABLE, { 'content-range': `bytes */${sizeBytes}`, 'content-length': '0' }).end()
    return
  }
  const { start, end } = range ?? { start: 0, end: sizeBytes }
  response.writeHead(range === undefined ? 200 : 206, {
    ...headers,
    'accept-ranges': 'bytes',
    'content-length': String(end - start),
    ...(range === undefined ? {} : { 'content-range': `bytes ${start}-${end - 1}/${sizeBytes}` }),
  })
  if (request.method === 'HEAD') return void response.end()
  try {
    await sendPieces(response, bytes, start, end, stallMs)
    response.end()
  } catch (error) {
    response.destroy()
    throw error
  }
}

/** Uses one buffer: the next piece is read when the connection has taken the previous one. */
async function sendPieces(
  response: ServerResponse,
  { read }: SentBytes,
  start: number,
  end: number,
  stallMs: number,
): Promise<void> {
  const closed = new Promise<'closed'>((resolve) => response.once('close', () => resolve('closed')))
  const buffer = Buffer.allocUnsafeSlow(Math.min(PIECE_BYTES, Math.max(end - start, 1)))
  // The headers are sent before the first bytes are available, so that the client sees a response.
  response.flushHeaders()
  for (let position = start; position < end;) {
    const size = await Promise.race([
      read(buffer.subarray(0, Math.min(buffer.length, end - position)), position),
      closed,
    ])
    if (size === 'closed') return
    if (size === 0) throw new Error('the bytes end before their size')
    position += size
    const taken = new Promise<'taken'>((resolve) => response.write(buffer.subarray(0, size), () => resolve('taken')))
    if ((await withDeadline(Promise.race([taken, closed]), stallMs, 'taking a piece')) === 'closed') return
  }
}
