/**
 * Streams of messages that are bytes alone: `ModuleService.Fetch`. A module crosses a process in hundreds of them, and
 * grpc-js copies each one two or three times and leaves the copies to the collector, which then takes more time than all
 * the rest. So the bytes are framed where they lie and read from HTTP/2 directly; on the wire it is the same gRPC.
 */
import { connect } from 'node:http2'
import type { ClientHttp2Stream, IncomingHttpHeaders } from 'node:http2'
import { connect as connectTls } from 'node:tls'
import { toBinary } from '@bufbuild/protobuf'
import type { DescMethod, MessageShape } from '@bufbuild/protobuf'
import { Metadata, status } from '@grpc/grpc-js'
import { FrameReader, frameInPlace, FRAME_HEAD_BYTES } from './byte-frames.ts'
import { hostOf, portOf } from './dial.ts'
import type { Dialling } from './dial.ts'
import type { ServerWritableStream } from './grpc.ts'

/**
 * How much may be under way to us (RFC 9113 section 5.2). The 64 KiB that a connection begins with cost a round trip each:
 * 640 KB/s from a source 100 ms away, and many small reads from one that is near.
 */
const WINDOW_BYTES = 1024 * 1024
/** What is handed on at a time, at most: whoever writes it to disk waits for another thread each time. */
const PIECE_BYTES = 1024 * 1024

/** How a call ended when it did not end well, in the words of gRPC. */
export class CallError extends Error {
  readonly code: number

  constructor(code: number, details: string) {
    super(details)
    this.code = code
  }
}

type Reader<M extends DescMethod> = {
  address: string
  dialling: Dialling
  method: M
  request: MessageShape<M['input']>
  /** Value of the header; undefined: none. */
  authorization: string | undefined
}

/**
 * Calls a method that streams bytes; what comes is handed on piece by piece, empty messages too, and each is a view that the
 * next one overwrites. While a piece is looked at no more than a window comes. A signal that is aborted ends it with its
 * reason. Throws `CallError`.
 */
export async function* readByteStream<M extends DescMethod>(
  { address, dialling, method, request, authorization }: Reader<M>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  signal.throwIfAborted()
  const { tls } = dialling
  const session = connect(`${tls === undefined ? 'http' : 'https'}://${address}`, {
    settings: { initialWindowSize: WINDOW_BYTES, enablePush: false },
    ...(tls === undefined
      ? {}
      : {
          createConnection: () =>
            connectTls({ ...tls, host: hostOf(address), port: Number(portOf(address)), ALPNProtocols: ['h2'] }),
        }),
  })
  session.once('connect', () => session.setLocalWindowSize(WINDOW_BYTES))
  const arriving = new Arriving()
  session.on('error', (error) => arriving.fail(new CallError(status.UNAVAILABLE, error.message)))
  const onAbort = () => arriving.fail(signal.reason as Error)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    const stream = session.request({
      ':method': 'POST',
      ':path': `/${method.parent.typeName}/${method.name}`,
      'content-type': 'application/grpc',
      te: 'trailers',
      'grpc-accept-encoding': 'identity',
      ...(authorization === undefined ? {} : { authorization }),
    })
    arriving.watch(stream)
    stream.end(prefixed(toBinary(method.input, request)))
    for (;;) {
      const piece = await arriving.piece(stream)
      if (piece === undefined) return
      yield piece
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    session.destroy()
  }
}

/** What of a call has come so far, what it came to, and who waits for it. */
class Arriving {
  readonly #reader = new FrameReader(PIECE_BYTES)
  /** Came after a piece was complete, and is taken apart when that one was looked at. */
  readonly #later: Buffer[] = []
  #piece: Buffer | undefined
  /** What is here is handed on once everything was read that is there to be read. */
  #isHandingOn = false
  #failure: Error | undefined
  #isClosed = false
  /** What the trailers say, or the headers where there is nothing else. */
  #code: number | undefined
  #details = ''
  #wake: () => void = () => undefined

  fail(failure: Error): void {
    this.#failure ??= failure
    this.#wake()
  }

  watch(stream: ClientHttp2Stream): void {
    stream.on('response', (headers) => {
      this.#learn(headers)
      if (headers[':status'] !== 200) {
        this.fail(new CallError(status.UNAVAILABLE, `it answers with HTTP status ${headers[':status']}`))
      }
    })
    stream.on('trailers', (headers) => this.#learn(headers))
    stream.on('error', (error) => this.fail(new CallError(status.UNAVAILABLE, error.message)))
    stream.on('data', (data: Buffer) => {
      const rest = this.#piece === undefined ? this.#take(data) : data
      if (rest.length > 0) this.#later.push(rest)
      if (this.#piece !== undefined) {
        stream.pause()
        this.#wake()
      } else {
        this.#handOnSoon()
      }
    })
    stream.on('close', () => {
      this.#isClosed = true
      this.#wake()
    })
  }

  /** The next piece, once the one before was looked at; undefined: that was all, and it ended well. */
  async piece(stream: ClientHttp2Stream): Promise<Buffer | undefined> {
    this.#piece = undefined
    for (;;) {
      while (this.#piece === undefined) {
        const data = this.#later.shift()
        if (data === undefined) break
        const rest = this.#take(data)
        if (rest.length > 0) this.#later.unshift(rest)
      }
      // What came before the end is handed on before the end is told of.
      if (this.#isClosed || this.#failure !== undefined) this.#handOn()
      if (this.#piece !== undefined) return this.#piece
      if (this.#failure !== undefined) throw this.#failure
      if (this.#isClosed) break
      this.#handOnSoon()
      const woken = new Promise<void>((resolve) => (this.#wake = resolve))
      stream.resume()
      await woken
    }
    if (this.#code !== status.OK) {
      throw new CallError(this.#code ?? status.UNAVAILABLE, this.#details === '' ? 'the call broke' : this.#details)
    }
    if (this.#reader.isWithinMessage) throw new CallError(status.UNAVAILABLE, 'the stream ended within a message')
    return undefined
  }

  #handOnSoon(): void {
    if (this.#isHandingOn || !this.#reader.hasWhole) return
    this.#isHandingOn = true
    setImmediate(() => {
      this.#isHandingOn = false
      this.#handOn()
    })
  }

  #handOn(): void {
    if (this.#piece !== undefined || !this.#reader.hasWhole) return
    this.#piece = this.#reader.piece()
    this.#wake()
  }

  /** What is left of the data once there is a piece. */
  #take(data: Buffer): Buffer {
    try {
      const used = this.#reader.take(data, 0)
      if (this.#reader.isFull) this.#piece = this.#reader.piece()
      return data.subarray(used)
    } catch (error) {
      this.fail(new CallError(status.INTERNAL, error instanceof Error ? error.message : 'it cannot be read'))
      return data.subarray(data.length)
    }
  }

  #learn(headers: IncomingHttpHeaders): void {
    const { 'grpc-status': code, 'grpc-message': details } = headers
    if (typeof code === 'string') this.#code = Number(code)
    if (typeof details === 'string') this.#details = decoded(details)
  }
}

/** "gRPC over HTTP/2", Status-Message: percent-encoded. */
function decoded(details: string): string {
  try {
    return decodeURIComponent(details)
  } catch {
    return details
  }
}

function prefixed(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

/** A buffer that chunks are read into before they are sent, `space` being where they belong. */
export type ChunkBuffer = { space: Buffer; framed: Buffer }

export function createChunkBuffer(maxBytes: number): ChunkBuffer {
  const framed = Buffer.allocUnsafeSlow(FRAME_HEAD_BYTES + maxBytes)
  return { framed, space: framed.subarray(FRAME_HEAD_BYTES) }
}

type Direct = { write: (data: Buffer, done: (error?: Error | null) => void) => boolean; destroyed: boolean }

/**
 * Sends the first bytes of a chunk as a message of the call. Resolves when the connection has taken them and the buffer may
 * be used again; never when the call is cancelled first.
 */
export function sendChunk<I, O>(
  call: ServerWritableStream<I, O>,
  { framed, space }: ChunkBuffer,
  sizeBytes: number,
  messageOf: (data: Buffer) => O,
): Promise<void> {
  const stream = streamBelow(call)
  return new Promise((resolve) => {
    if (stream === undefined) {
      call.write(messageOf(Buffer.from(space.subarray(0, sizeBytes))), () => resolve())
      return
    }
    if (stream.destroyed) return
    call.sendMetadata(new Metadata())
    stream.write(frameInPlace(framed, sizeBytes), (error) => error ?? resolve())
  })
}

/**
 * The HTTP/2 stream of a call. grpc-js has no way to give it bytes that are a message already; one that keeps its stream
 * elsewhere is given messages, which is slower and nothing else.
 */
export function streamBelow(call: object): Direct | undefined {
  const { stream } = ((call as { call?: unknown }).call ?? {}) as { stream?: Partial<Direct> }
  return typeof stream?.write === 'function' ? (stream as Direct) : undefined
}
