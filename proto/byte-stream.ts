/**
 * Reads streams of messages that are bytes alone: `ModuleService.Fetch`. A module crosses a worker in thousands of frames, and
 * `node:http2` makes an event and several objects of each. So one connection per call is read here directly, into buffers
 * that are used again; on the wire it is the same gRPC ("gRPC over HTTP/2").
 */
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { toBinary } from '@bufbuild/protobuf'
import type { DescMethod, MessageShape } from '@bufbuild/protobuf'
import { status } from '@grpc/grpc-js'
import { FrameReader } from './byte-frames.ts'
import { hostOf, portOf } from './dial.ts'
import type { Dialling } from './dial.ts'
import { decodeHeaders, encodeHeaders } from './hpack.ts'
import {
  ACK,
  END_HEADERS,
  END_STREAM,
  FRAME,
  Http2FrameReader,
  frameOf,
  settingsFrame,
  windowUpdateFrame,
} from './http2-frames.ts'
import type { Frame } from './http2-frames.ts'

/**
 * How much may be under way to us (RFC 9113 section 5.2), and thus the most that is handed on at a time. The 64 KiB that a
 * connection begins with cost a round trip each: 640 KB/s from a source 100 ms away.
 */
const WINDOW_BYTES = 1024 * 1024
const INITIAL_WINDOW_BYTES = 65_535
/** What was looked at is allowed again in portions of this size at least: each is a write of its own. */
const GRANT_BYTES = WINDOW_BYTES / 2
/** What one read of the connection may bring. */
const READ_BYTES = 256 * 1024
const MAX_HEADER_BYTES = 64 * 1024
/** RFC 9113 section 3.4. */
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1')
/** RFC 9113 section 6.5.2. */
const SETTINGS = { headerTableSize: 1, enablePush: 2, initialWindowSize: 4 } as const
/** Our one call is the first stream that a client opens (RFC 9113 section 5.1.1). */
const STREAM_ID = 1

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
 * Calls a method that streams bytes; what comes is handed on piece by piece, empty messages too, and each is a view that is
 * overwritten once the next one was asked for. While a piece is looked at no more than a window comes. A signal that is
 * aborted ends it with its reason. Throws `CallError`.
 */
export async function* readByteStream<M extends DescMethod>(
  { address, dialling, method, request, authorization }: Reader<M>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  signal.throwIfAborted()
  const headers = encodeHeaders({
    ':method': 'POST',
    ':scheme': dialling.tls === undefined ? 'http' : 'https',
    ':path': `/${method.parent.typeName}/${method.name}`,
    ':authority': address,
    'content-type': 'application/grpc',
    te: 'trailers',
    'grpc-accept-encoding': 'identity',
    ...(authorization === undefined ? {} : { authorization }),
  })
  const arriving = new Arriving()
  const socket = dial(address, dialling, (bytes) => arriving.take(bytes))
  const onAbort = () => arriving.fail(signal.reason as Error)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    arriving.watch(socket)
    socket.write(
      Buffer.concat([
        PREFACE,
        settingsFrame([
          [SETTINGS.headerTableSize, 0],
          [SETTINGS.enablePush, 0],
          [SETTINGS.initialWindowSize, WINDOW_BYTES],
        ]),
        windowUpdateFrame(0, WINDOW_BYTES - INITIAL_WINDOW_BYTES),
        frameOf(FRAME.headers, END_HEADERS, STREAM_ID, headers),
        frameOf(FRAME.data, END_STREAM, STREAM_ID, prefixed(toBinary(method.input, request))),
      ]),
    )
    for (;;) {
      const piece = await arriving.piece()
      if (piece === undefined) return
      yield piece
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    socket.destroy()
  }
}

/** A connection whose bytes are read into one buffer and looked at before the next ones are. */
function dial(address: string, { tls }: Dialling, take: (bytes: Buffer) => void): Socket {
  const [host, port] = [hostOf(address), Number(portOf(address))]
  const onread = {
    buffer: Buffer.allocUnsafeSlow(READ_BYTES),
    callback(sizeBytes: number, buffer: Uint8Array) {
      take(Buffer.from(buffer.buffer, buffer.byteOffset, sizeBytes))
      return true // reading never pauses: the window says how much may come
    },
  }
  if (tls === undefined) return connect({ host, port, onread, noDelay: true })
  const options = { ...tls, host, port, onread, ALPNProtocols: ['h2'] }
  return connectTls(options)
}

/** What of a call has come so far, what it came to, and who waits for it. */
class Arriving {
  readonly #messages = new FrameReader(WINDOW_BYTES)
  readonly #frames = new Http2FrameReader({
    onData: (part, streamId) => this.#takeData(part, streamId),
    onFrame: (frame) => this.#takeFrame(frame),
  })
  #socket: Socket | undefined
  #failure: Error | undefined
  #isEnded = false
  /** Of headers whose end has not come yet. */
  #headers: { block: Buffer; isLast: boolean } | undefined
  /** What the trailers say, or the headers where there is nothing else. */
  #code: number | undefined
  #details = ''
  /** Counted against the window: what is not handed on yet, and what was, up to what was allowed again. */
  #newBytes = 0
  #seenBytes = 0
  /** What is here is handed on once everything was read that is there to be read. */
  #isHandingOn = false
  #wake: () => void = () => undefined

  fail(failure: Error): void {
    this.#failure ??= failure
    this.#wake()
  }

  watch(socket: Socket): void {
    this.#socket = socket
    socket.on('error', (error) => this.fail(new CallError(status.UNAVAILABLE, error.message)))
    socket.on('close', () => this.fail(new CallError(status.UNAVAILABLE, 'the connection broke')))
  }

  /** The next bytes of the connection. */
  take(bytes: Buffer): void {
    if (this.#isOver) return
    try {
      this.#frames.take(bytes)
      this.#handOnSoon()
    } catch (error) {
      const message = error instanceof Error ? error.message : 'it cannot be read'
      this.fail(new CallError(status.UNAVAILABLE, `not the gRPC that was expected: ${message}`))
    }
  }

  /** The next piece, once the one before was looked at; undefined: that was all, and it ended well. */
  async piece(): Promise<Buffer | undefined> {
    this.#messages.release()
    this.#allowMore()
    // What came before the end is handed on before the end is told of.
    for (let isRead = false; !this.#isOver && !(isRead && this.#isEnough); isRead = true) {
      const woken = new Promise<void>((resolve) => (this.#wake = resolve))
      this.#handOnSoon()
      await woken
    }
    if (this.#messages.hasWhole || this.#messages.filledBytes > 0) {
      const piece = this.#messages.piece()
      const restBytes = this.#messages.filledBytes
      this.#seenBytes += this.#newBytes - restBytes
      this.#newBytes = restBytes
      return piece
    }
    if (this.#failure !== undefined) throw this.#failure
    if (this.#code !== status.OK) {
      throw new CallError(this.#code ?? status.UNAVAILABLE, this.#details === '' ? 'the call broke' : this.#details)
    }
    if (this.#messages.isWithinMessage) throw new CallError(status.UNAVAILABLE, 'the stream ended within a message')
    return undefined
  }

  get #isOver(): boolean {
    return this.#isEnded || this.#failure !== undefined
  }

  /** A message, or of a large one so much that the window would not let the rest in. */
  get #isEnough(): boolean {
    return this.#messages.hasWhole || this.#messages.filledBytes >= WINDOW_BYTES / 2
  }

  #handOnSoon(): void {
    if (this.#isHandingOn || !this.#isEnough) return
    this.#isHandingOn = true
    setImmediate(() => {
      this.#isHandingOn = false
      this.#wake()
    })
  }

  #allowMore(): void {
    if (this.#seenBytes < GRANT_BYTES || this.#isOver) return
    this.#socket?.write(
      Buffer.concat([windowUpdateFrame(0, this.#seenBytes), windowUpdateFrame(STREAM_ID, this.#seenBytes)]),
    )
    this.#seenBytes = 0
  }

  #takeData(part: Buffer, streamId: number): void {
    if (streamId !== STREAM_ID) throw new Error(`data of stream ${streamId}`)
    if (this.#messages.take(part) < part.length) throw new Error('more data than the window allows')
  }

  #takeFrame({ type, flags, streamId, payload, sizeBytes }: Frame): void {
    if (this.#headers !== undefined && type !== FRAME.continuation) throw new Error('headers that do not end')
    switch (type) {
      case FRAME.data:
        this.#newBytes += sizeBytes
        if ((flags & END_STREAM) !== 0) this.#end()
        return
      case FRAME.headers:
        if (streamId !== STREAM_ID) throw new Error(`headers of stream ${streamId}`)
        return this.#takeHeaders(payload, flags, (flags & END_STREAM) !== 0)
      case FRAME.continuation:
        if (this.#headers === undefined) throw new Error('headers that go on without a beginning')
        return this.#takeHeaders(Buffer.concat([this.#headers.block, payload]), flags, this.#headers.isLast)
      case FRAME.settings:
        if ((flags & ACK) === 0) this.#socket?.write(frameOf(FRAME.settings, ACK, 0, Buffer.alloc(0)))
        return
      case FRAME.ping:
        if ((flags & ACK) === 0) this.#socket?.write(frameOf(FRAME.ping, ACK, 0, payload))
        return
      case FRAME.resetStream:
        if (streamId === STREAM_ID) this.fail(new CallError(status.UNAVAILABLE, 'the call was cut'))
        return
      case FRAME.goaway:
        // Of the streams that it names at least, it goes on (RFC 9113 section 6.8).
        if (payload.readUInt32BE(0) < STREAM_ID) this.fail(new CallError(status.UNAVAILABLE, 'the call was not begun'))
        return
      case FRAME.pushPromise:
        throw new Error('a push that was not allowed')
    }
  }

  #takeHeaders(block: Buffer, flags: number, isLast: boolean): void {
    if (block.length > MAX_HEADER_BYTES) throw new Error(`headers of more than ${MAX_HEADER_BYTES} bytes`)
    this.#headers = (flags & END_HEADERS) === 0 ? { block, isLast } : undefined
    if (this.#headers !== undefined) return
    const fields = decodeHeaders(block)
    const httpStatus = fields.get(':status') ?? '200'
    if (httpStatus !== '200') {
      this.fail(new CallError(status.UNAVAILABLE, `it answers with HTTP status ${httpStatus}`))
    }
    const code = fields.get('grpc-status')
    if (code !== undefined) this.#code = Number(code)
    this.#details = decoded(fields.get('grpc-message') ?? this.#details)
    if (isLast) this.#end()
  }

  #end(): void {
    this.#isEnded = true
    this.#wake()
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

/** "gRPC over HTTP/2", Length-Prefixed-Message: not compressed, and its length. */
function prefixed(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}
