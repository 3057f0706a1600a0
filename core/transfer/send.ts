/** Answers a GET or HEAD with bytes that are read as the caller takes them: with a Range, and given up when nothing is taken. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { withDeadline } from '../time.ts'
import { parseRange } from './ranges.ts'

export type SentBytes = {
  sizeBytes: number
  /** Reads into the buffer from a position: how many bytes, at least one. May wait for bytes that are still on their way. */
  read(into: Buffer, position: number): Promise<number>
}

export type SendLimits = {
  /** Milliseconds in which one piece of at most 256 KiB must be taken. */
  stallMs: number
}

/** RFC 9110 section 15.5.17; no refusal of a service has it. */
const RANGE_NOT_SATISFIABLE = 416
/** What is read and written at a time. */
const PIECE_BYTES = 256 * 1024

/**
 * Sends what the request asks for. Resolves when it is sent, or the caller went away. Throws what `read` throws; then, and when
 * the caller does not take a piece in time, the connection is cut, so that nobody takes a part for the whole.
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

/** One buffer for all of it: the next piece is read when the connection has taken this one. */
async function sendPieces(
  response: ServerResponse,
  { read }: SentBytes,
  start: number,
  end: number,
  stallMs: number,
): Promise<void> {
  const closed = new Promise<'closed'>((resolve) => response.once('close', () => resolve('closed')))
  const buffer = Buffer.allocUnsafeSlow(Math.min(PIECE_BYTES, Math.max(end - start, 1)))
  // The headers leave before the first bytes are there: they say that there is somebody who has them.
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
